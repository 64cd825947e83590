// A part of a graph that runs as one: a node by XNNPACK's operators, or a fused kernel.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "backends/xnnpack/graph.h"

namespace edgewise::xnnpack {

// Memory that steps use while they run. A thread's own is in the same place for all steps of a
// program: so it stays in the thread's cache, and no other one has to give it up.
struct Scratch {
  static constexpr size_t kAlignment = 64;

  std::byte* shared = nullptr;
  std::byte* of_threads = nullptr;
  size_t thread_stride = 0;  // bytes

  template <typename T>
  T* of_thread(size_t thread) const {
    return reinterpret_cast<T*>(of_threads + thread * thread_stride);
  }
};

// Indices are those of the whole graph's values. All of it is used under the program state's
// mutex.
class Step {
 public:
  virtual ~Step() = default;

  // Values that it reads and writes, constants aside.
  virtual const std::vector<uint32_t>& reads() const = 0;
  virtual const std::vector<uint32_t>& writes() const = 0;

  // Whether its first output can lie where `input` does, if they have the same size.
  virtual bool may_overwrite(uint32_t /*input*/) const { return false; }
  // Whether reshape() can go to `shapes`; if not, make a new one.
  virtual bool can_take(const std::vector<Shape>&) const { return true; }
  virtual Status reshape(const std::vector<Shape>& shapes) = 0;
  // Bytes that it needs while it runs, after reshape(): all threads together, and each by itself.
  virtual size_t scratch_bytes() const { return 0; }
  virtual size_t thread_scratch_bytes() const { return 0; }
  // `addresses` of all values that it reads and writes.
  virtual Status set_pointers(std::span<void* const> addresses, const Scratch& scratch) = 0;
  virtual Status run() = 0;

  // What a profile calls it. The nodes are the executor's.
  virtual std::string name() const = 0;
};

}  // namespace edgewise::xnnpack
