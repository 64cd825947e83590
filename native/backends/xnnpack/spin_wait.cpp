#include "backends/xnnpack/spin_wait.h"

#include <algorithm>
#include <atomic>
#include <thread>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace edgewise::xnnpack {
namespace {

// Iterations of a loop with the CPU's pause instruction, of 17 to 60 ns each on x86. During a call
// pthreadpool has waited for the next loop as long as that is worth it.
constexpr uint32_t kDuringCall = 0;
constexpr uint32_t kAfterCall = 8000;

// Of all pools of the process at once. Delegates that run side by side may end in any order: all
// that this changes is when a thread goes to sleep.
std::atomic<uint32_t> iterations{kAfterCall};

void pause_cpu() {
#if defined(__x86_64__) || defined(__i386__)
  _mm_pause();
#elif defined(__aarch64__) || defined(__ARM_ARCH_7A__)
  __asm__ __volatile__("yield");
#else
  std::this_thread::yield();
#endif
}

}  // namespace

SpinWaitPolicy::SpinWaitPolicy() { iterations.store(kDuringCall, std::memory_order_relaxed); }

SpinWaitPolicy::~SpinWaitPolicy() { iterations.store(kAfterCall, std::memory_order_relaxed); }

bool SpinWait::spin() {
  // The most that it was: a call that begins must not send to sleep who waited for it.
  most_ = std::max(most_, iterations.load(std::memory_order_relaxed));
  if (spins_ >= most_) return false;
  ++spins_;
  pause_cpu();
  return true;
}

}  // namespace edgewise::xnnpack
