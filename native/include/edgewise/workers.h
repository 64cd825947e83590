// Threads that share a loop.
#pragma once

#include <cstddef>
#include <type_traits>

namespace edgewise {

class Workers {
 public:
  virtual ~Workers() = default;
  // Calls task(context, i) for i below `count`, by several threads and in any order, and returns
  // when all calls have. Tasks do not throw. Callers may be several threads, which then take turns.
  virtual void run(size_t count, void (*task)(void* context, size_t index), void* context) = 0;
};

// task(i) for i below `count`, by the workers or, without any, one after the other.
template <typename Task>
void for_each(Workers* workers, size_t count, Task&& task) {
  if (workers == nullptr || count < 2) {
    for (size_t i = 0; i < count; ++i) task(i);
    return;
  }
  using Plain = std::remove_reference_t<Task>;
  workers->run(
      count, [](void* context, size_t index) { (*static_cast<Plain*>(context))(index); }, &task);
}

}  // namespace edgewise
