// Hides instruction sets from the rest of this process: CPUID traps (Linux on x86-64, where the
// CPU can do so), and a handler answers without the bits of what is above the level.
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <cpuid.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

static int level;  // 1: no vectors beyond SSE4.2; 2: up to AVX2; 3: AVX-512 without FP16 and AMX

static void answer(int signal_number, siginfo_t* info, void* context) {
  (void)info;
  greg_t* registers = ((ucontext_t*)context)->uc_mcontext.gregs;
  const unsigned char* code = (const unsigned char*)registers[REG_RIP];
  if (code[0] != 0x0f || code[1] != 0xa2) {
    signal(signal_number, SIG_DFL);
    return;
  }
  const unsigned leaf = (unsigned)registers[REG_RAX], part = (unsigned)registers[REG_RCX];
  unsigned a, b, c, d;
  syscall(SYS_arch_prctl, ARCH_SET_CPUID, 1);
  __cpuid_count(leaf, part, a, b, c, d);
  syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0);
  if (leaf == 1 && level < 2) c &= ~(1u << 12 | 1u << 28 | 1u << 29);  // FMA, AVX, F16C
  if (leaf == 7 && part == 0) {
    d &= ~(1u << 22 | 1u << 23 | 1u << 24 | 1u << 25);  // AMX, AVX512-FP16
    if (level < 3) {
      b &= ~(1u << 16 | 1u << 17 | 1u << 21 | 1u << 26 | 1u << 27 | 1u << 28 | 1u << 30 | 1u << 31);
      c &= ~(1u << 1 | 1u << 6 | 1u << 11 | 1u << 12 | 1u << 14);
      d &= ~(1u << 2 | 1u << 3 | 1u << 8);
    }
    if (level < 2) {
      b &= ~(1u << 5);                          // AVX2
      c &= ~(1u << 8 | 1u << 9 | 1u << 10);     // GFNI, VAES, VPCLMULQDQ
    }
  }
  if (leaf == 7 && part == 1) {
    a &= ~(1u << 5 | 1u << 21);  // AVX512-BF16, AMX-FP16
    if (level < 3) a = b = c = d = 0;
  }
  if (leaf == 0xd && part == 0 && level < 3) a &= level < 2 ? 3u : 7u;
  registers[REG_RAX] = a;
  registers[REG_RBX] = b;
  registers[REG_RCX] = c;
  registers[REG_RDX] = d;
  registers[REG_RIP] += 2;
}

// 0 if the CPU is a lesser one from now on.
int become(int wanted) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = answer;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  level = wanted;
  if (sigaction(SIGSEGV, &action, 0) != 0) return 1;
  return syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0) == 0 ? 0 : 1;
}
