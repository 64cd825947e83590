#include "backends/xnnpack/program_state.h"

#include <algorithm>

#include "backends/xnnpack/allocator.h"
#include "backends/xnnpack/limit_cpu.h"
#include "backends/xnnpack/xnn_error.h"
#include "edgewise/tensor.h"

namespace edgewise::xnnpack {
namespace {

constexpr int kMaxThreads = 256;

}  // namespace

xnn_status initialize_xnnpack() {
  static const xnn_status status = [] {
    limit_xnnpack();
    return xnn_initialize(&allocator());
  }();
  return status;
}

Result<std::shared_ptr<ProgramState>> ProgramState::make(int threads) {
  if (auto status = check_xnn(initialize_xnnpack(), "initialization"); !status.ok()) return status;
  std::shared_ptr<ProgramState> state(new ProgramState());
  if (threads > 1 && !state->threads_.start(static_cast<size_t>(std::min(threads, kMaxThreads)))) {
    return error(Code::kOutOfMemory, "[xnnpack] %d threads could not be started; try fewer",
                 threads);
  }
  return state;
}

Result<std::byte*> ProgramState::memory_between_steps(size_t bytes) {
  if (bytes > between_steps_.size) {
    between_steps_ = {};
    if (bytes > kHugePage) bytes = (bytes + kHugePage - 1) / kHugePage * kHugePage;
    between_steps_.memory = allocate_shared(bytes);
    if (between_steps_.memory == nullptr) {
      return error(Code::kOutOfMemory,
                   "[xnnpack] intermediate results need %zu bytes; try smaller "
                   "inputs",
                   bytes);
    }
    between_steps_.size = bytes;
  }
  return between_steps_.memory.get();
}

void ProgramState::run(size_t count, void (*task)(void* context, size_t index), void* context) {
  const pthreadpool_t threads = is_without_threads() ? nullptr : threadpool();
  pthreadpool_parallelize_1d(threads, task, context, count, 0);
}

}  // namespace edgewise::xnnpack
