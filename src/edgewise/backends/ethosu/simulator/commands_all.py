"""Commands of all families: opcode (bit 14: a second word follows), name, fields.

A field is NAME[@BIT]:BITS[=[ENUM]], in the upper half of the first word, or in the second
where it begins with "+". No ENUM after "=": that of the field's name. "addr" has 40 bits: 8 in the
first word, 32 in the second.
"""

COMMANDS = """
0x0000 NPU_OP_STOP mask:16
0x0001 NPU_OP_IRQ mask:16
0x0003 NPU_OP_DEPTHWISE
0x0005 NPU_OP_POOL pooling_mode:3=
0x0006 NPU_OP_ELEMENTWISE elementwise_mode:6=
0x0010 NPU_OP_DMA_START
0x0013 NPU_OP_PMU_MASK enable:1
0x0100 NPU_SET_IFM_PAD_TOP pad:7
0x0101 NPU_SET_IFM_PAD_LEFT pad:7
0x0102 NPU_SET_IFM_PAD_RIGHT pad:8
0x0103 NPU_SET_IFM_PAD_BOTTOM pad:8
0x0104 NPU_SET_IFM_DEPTH_M1 depth_m1:16
0x0107 NPU_SET_IFM_UPSCALE mode:2=ifm_upscale_mode
0x0109 NPU_SET_IFM_ZERO_POINT zero_point:16
0x010A NPU_SET_IFM_WIDTH0_M1 width_m1:16
0x010B NPU_SET_IFM_HEIGHT0_M1 height_m1:16
0x010C NPU_SET_IFM_HEIGHT1_M1 height_m1:16
0x010F NPU_SET_IFM_REGION region:3
0x0111 NPU_SET_OFM_WIDTH_M1 width_m1:16
0x0112 NPU_SET_OFM_HEIGHT_M1 height_m1:16
0x0113 NPU_SET_OFM_DEPTH_M1 depth_m1:16
0x0118 NPU_SET_OFM_ZERO_POINT zero_point:16
0x011A NPU_SET_OFM_WIDTH0_M1 width_m1:16
0x011B NPU_SET_OFM_HEIGHT0_M1 height_m1:16
0x011C NPU_SET_OFM_HEIGHT1_M1 height_m1:16
0x011F NPU_SET_OFM_REGION region:3
0x0120 NPU_SET_KERNEL_WIDTH_M1 width_m1:16
0x0121 NPU_SET_KERNEL_HEIGHT_M1 height_m1:16
0x0122 NPU_SET_KERNEL_STRIDE stride_x_lsb:1 stride_y_lsb@1:1 weight_order@2:1=
    dilation_x@3:1=kernel_dilation dilation_y@4:1=kernel_dilation
    decomposition@5:1=kernel_decomposition stride_x_msb@6:1 stride_y_msb@9:1
0x0126 NPU_SET_ACTIVATION_MIN clip_boundary:16
0x0127 NPU_SET_ACTIVATION_MAX clip_boundary:16
0x0128 NPU_SET_WEIGHT_REGION region:3
0x0129 NPU_SET_SCALE_REGION region:3
0x0132 NPU_SET_DMA0_SIZE0 size:16
0x0133 NPU_SET_DMA0_SIZE1 size:16
0x0189 NPU_SET_IFM2_ZERO_POINT zero_point:16
0x018A NPU_SET_IFM2_WIDTH0_M1 width_m1:16
0x018B NPU_SET_IFM2_HEIGHT0_M1 height_m1:16
0x018C NPU_SET_IFM2_HEIGHT1_M1 height_m1:16
0x018F NPU_SET_IFM2_REGION region:3
0x4000 NPU_SET_IFM_BASE0 addr
0x4001 NPU_SET_IFM_BASE1 addr
0x4002 NPU_SET_IFM_BASE2 addr
0x4003 NPU_SET_IFM_BASE3 addr
0x4004 NPU_SET_IFM_STRIDE_X addr
0x4005 NPU_SET_IFM_STRIDE_Y addr
0x4006 NPU_SET_IFM_STRIDE_C addr
0x4010 NPU_SET_OFM_BASE0 addr
0x4011 NPU_SET_OFM_BASE1 addr
0x4012 NPU_SET_OFM_BASE2 addr
0x4013 NPU_SET_OFM_BASE3 addr
0x4014 NPU_SET_OFM_STRIDE_X addr
0x4015 NPU_SET_OFM_STRIDE_Y addr
0x4016 NPU_SET_OFM_STRIDE_C addr
0x4020 NPU_SET_WEIGHT_BASE addr
0x4021 NPU_SET_WEIGHT_LENGTH +length:32
0x4022 NPU_SET_SCALE_BASE addr
0x4023 NPU_SET_SCALE_LENGTH +length:20
0x4030 NPU_SET_DMA0_SRC addr
0x4031 NPU_SET_DMA0_DST addr
0x4032 NPU_SET_DMA0_LEN addr
0x4080 NPU_SET_IFM2_BASE0 addr
0x4081 NPU_SET_IFM2_BASE1 addr
0x4082 NPU_SET_IFM2_BASE2 addr
0x4083 NPU_SET_IFM2_BASE3 addr
0x4084 NPU_SET_IFM2_STRIDE_X addr
0x4085 NPU_SET_IFM2_STRIDE_Y addr
0x4086 NPU_SET_IFM2_STRIDE_C addr
0x4090 NPU_SET_WEIGHT1_BASE addr
0x4091 NPU_SET_WEIGHT1_LENGTH +length:32
"""

ENUMS: dict[str, dict[int, str]] = {
    "activation_format": {0: "NHWC", 1: "NHCWB16"},
    "activation_precision": {0: "B8", 1: "B16", 2: "B32", 3: "B64"},
    "activation_type": {0: "UNSIGNED", 1: "SIGNED"},
    "dma_region_mode": {0: "EXTERNAL", 1: "INTERNAL"},
    "dma_stride_mode": {0: "D1", 1: "D2", 2: "D3"},
    "ifm_upscale_mode": {0: "NONE", 1: "NEAREST", 2: "ZEROS"},
    "kernel_decomposition": {0: "D8X8", 1: "D4X4"},
    "kernel_dilation": {0: "NONE", 1: "X2"},
    "ofm_scale_mode": {0: "PER_CHANNEL", 1: "GLOBAL"},
    "weight_order": {0: "DEPTH_FIRST", 1: "PART_KERNEL_FIRST"},
}
