// What the delegates of one program share: threads, workspace, packed weights.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "backends/xnnpack/weights_cache.h"
#include "edgewise/backend.h"
#include "pthreadpool.h"
#include "xnnpack.h"

namespace edgewise::xnnpack {

class ProgramState final : public BackendProgramState, public Workers {
 public:
  // One thread: no pool. XNNPACK is initialized.
  static Result<std::shared_ptr<ProgramState>> make(int threads);
  ~ProgramState() override;
  ProgramState(const ProgramState&) = delete;
  ProgramState& operator=(const ProgramState&) = delete;

  // Held while a runtime is made, run or deleted: all of these use the workspace.
  std::mutex& mutex() { return mutex_; }
  xnn_workspace_t workspace() const { return workspace_; }
  pthreadpool_t threadpool() const { return threadpool_; }
  // Whether its threads are those of the process that this one was forked from.
  bool is_without_threads() const;
  PackedWeights& weights() { return weights_; }
  // Counts what may move the workspace, or what a runtime knows of it.
  void count_plan() { ++plans_; }
  uint64_t plans() const { return plans_; }
  // At least `bytes` for a delegate's values while it runs; what is in it is gone when another
  // one runs. It moves when more is asked for than ever before.
  Result<std::byte*> memory_between_steps(size_t bytes);

  void run(size_t count, void (*task)(void* context, size_t index), void* context) override {
    pthreadpool_parallelize_1d(threadpool_, task, context, count, 0);
  }

 private:
  ProgramState() = default;

  std::mutex mutex_;
  xnn_workspace_t workspace_ = nullptr;
  uint64_t plans_ = 0;
  pthreadpool_t threadpool_ = nullptr;
  unsigned forks_ = 0;  // before it was made
  PackedWeights weights_;
  PackedWeights::Buffer between_steps_;
};

// Initializes XNNPACK, once in the process.
xnn_status initialize_xnnpack();

}  // namespace edgewise::xnnpack
