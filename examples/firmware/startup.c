/* From reset to main(), and the way to the debugger's (or QEMU's) console: semihosting. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "board.h"

extern uint8_t data_begin[], data_end[], data_load[], bss_begin[], bss_end[];
extern uint8_t stack_begin[], stack_end[];
extern void (*init_array_begin[])(void);
extern void (*init_array_end[])(void);
int main(void);

static uintptr_t semihost(uintptr_t operation, const void* argument) {
  register uintptr_t r0 __asm__("r0") = operation;
  register const void* r1 __asm__("r1") = argument;
  __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
  return r0;
}

void board_print(const char* text) { semihost(0x04, text); }

void board_exit(int code) {
  const uintptr_t reason[2] = {0x20026, (uintptr_t)code}; /* the application ends, with its code */
  semihost(0x20, reason);
  for (;;) {
  }
}

enum { PAINT = 0xa5 };

size_t board_stack_used(void) {
  const uint8_t* at = stack_begin;
  while (at != stack_end && *at == PAINT) ++at;
  return (size_t)(stack_end - at);
}

void abort(void) {
  board_print("stopped\n");
  board_exit(3);
  for (;;) {
  }
}

static void fault_handler(void) {
  board_print("fault\n");
  board_exit(4);
}

void reset_handler(void) {
  *(volatile uint32_t*)0xe000ed88 |= 0xfu << 20; /* CPACR: floating point and vectors */
  __asm__ volatile("dsb\n isb");
  memcpy(data_begin, data_load, (size_t)(data_end - data_begin));
  memset(bss_begin, 0, (size_t)(bss_end - bss_begin));
  memset(stack_begin, PAINT, (size_t)((uint8_t*)__builtin_frame_address(0) - stack_begin) - 256);
  for (void (**start)(void) = init_array_begin; start != init_array_end; ++start) (*start)();
  board_exit(main());
}

__attribute__((section(".vectors"), used)) static void* const vectors[16] = {
    stack_end,     reset_handler, fault_handler, fault_handler, fault_handler,
    fault_handler, fault_handler, fault_handler,
};
