/* The input's bytes, as they are in the file. */
  .section .rodata.firmware_input, "a"
  .global firmware_input
  .balign 16
firmware_input:
  .incbin FIRMWARE_INPUT
  .global firmware_input_end
firmware_input_end:
