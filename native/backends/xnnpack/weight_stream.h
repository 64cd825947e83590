// Whether weights are read past the caches: XNNPACK asks, as edgewise builds it, see
// cmake/xnnpack_streaming_kernel.h.
#pragma once

#include <cstddef>

namespace edgewise::xnnpack {

// The last cache may still hold less when it is read the next time.
inline constexpr size_t kMostCached = size_t{64} << 20;

// While it lives, this thread runs a program with `bytes` of packed weights.
class WeightStream {
 public:
  explicit WeightStream(size_t bytes);
  ~WeightStream();
  WeightStream(const WeightStream&) = delete;
  WeightStream& operator=(const WeightStream&) = delete;

  // How often XNNPACK asked, and weights are read past the caches. Of this thread; for tests.
  static size_t answers();

 private:
  const bool before_;
};

}  // namespace edgewise::xnnpack
