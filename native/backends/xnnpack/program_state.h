// What the delegates of one program share: threads (which its kernels have, too), memory while they
// run, packed weights.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "backends/xnnpack/borrowed_threads.h"
#include "backends/xnnpack/weights_cache.h"
#include "edgewise/backend.h"
#include "xnnpack.h"

namespace edgewise::xnnpack {

class ProgramState final : public BackendProgramState, public Workers {
 public:
  // One thread: no pool. XNNPACK is initialized.
  static Result<std::shared_ptr<ProgramState>> make(int threads);
  ProgramState(const ProgramState&) = delete;
  ProgramState& operator=(const ProgramState&) = delete;

  // Held while an executor is made, run or deleted.
  std::mutex& mutex() { return mutex_; }
  pthreadpool_t threadpool() const { return threads_.get(); }
  // Whether its threads are those of the process that this one was forked from.
  bool is_without_threads() const { return threads_.is_of_parent(); }
  PackedWeights& weights() { return weights_; }
  // At least `bytes` for a delegate's values while it runs; what is in it is gone when another
  // one runs. It moves when more is asked for than ever before.
  Result<std::byte*> memory_between_steps(size_t bytes);

  // For kernels of the runtime. Without threads (is_without_threads()): by the caller alone.
  void run(size_t count, void (*task)(void* context, size_t index), void* context) override;

 private:
  ProgramState() = default;

  std::mutex mutex_;
  ThreadPool threads_;
  PackedWeights weights_;
  PackedWeights::Buffer between_steps_;
};

// Initializes XNNPACK, once in the process.
xnn_status initialize_xnnpack();

}  // namespace edgewise::xnnpack
