// The threads that a program's kernels share loops with: found when a loop first wants them, so
// that a program without such loops starts none.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "edgewise/workers.h"
#include "platform/mutex.h"

namespace edgewise {

class ProgramWorkers final : public Workers {
 public:
  // `find` is called once, by the first loop; null: there are none, and loops run on the caller.
  explicit ProgramWorkers(std::function<std::shared_ptr<Workers>()> find)
      : find_(std::move(find)) {}

  void run(size_t count, void (*task)(void* context, size_t index), void* context) override {
    if (Workers* found = found_or_null()) return found->run(count, task, context);
    for (size_t i = 0; i < count; ++i) task(context, i);
  }

 private:
  Workers* found_or_null() {
    const std::lock_guard lock(mutex_);
    if (find_) {
      found_ = find_();
      find_ = nullptr;
    }
    return found_.get();
  }

  platform::Mutex mutex_;
  std::function<std::shared_ptr<Workers>()> find_;  // empty: it was called
  std::shared_ptr<Workers> found_;
};

}  // namespace edgewise
