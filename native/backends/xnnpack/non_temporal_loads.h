// Whether weights are prefetched past the caches (non-temporal): those of a language model come
// from memory for every token, and push out of the caches what could stay there.
#pragma once

#include <cstddef>

namespace edgewise::xnnpack {

// The last cache may still hold less when it is read the next time.
inline constexpr size_t kMostCached = size_t{64} << 20;

// While it lives, this thread runs a program with `bytes` of packed weights.
class NonTemporalLoads {
 public:
  explicit NonTemporalLoads(size_t bytes);
  ~NonTemporalLoads();
  NonTemporalLoads(const NonTemporalLoads&) = delete;
  NonTemporalLoads& operator=(const NonTemporalLoads&) = delete;

  // Whether one of many bytes lives in this thread.
  static bool are_on();

 private:
  const bool before_;
};

}  // namespace edgewise::xnnpack
