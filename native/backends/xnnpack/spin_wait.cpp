#include "backends/xnnpack/spin_wait.h"

#include <atomic>
#include <cstdint>

namespace {

// Iterations of a loop with the CPU's pause instruction, of 17 to 60 ns each on x86.
constexpr uint32_t kDuringCall = 1000;
constexpr uint32_t kAfterCall = 8000;

}  // namespace

// Read by pthreadpool as edgewise builds it (cmake/xnnpack_build.cmake), by all pools of the
// process at once. Delegates that run side by side may end in any order: all that this changes is
// when a thread goes to sleep.
extern "C" {
std::atomic<uint32_t> edgewise_spin_wait_iterations{kAfterCall};
}

namespace edgewise::xnnpack {

SpinWaitPolicy::SpinWaitPolicy() {
  edgewise_spin_wait_iterations.store(kDuringCall, std::memory_order_relaxed);
}

SpinWaitPolicy::~SpinWaitPolicy() {
  edgewise_spin_wait_iterations.store(kAfterCall, std::memory_order_relaxed);
}

}  // namespace edgewise::xnnpack
