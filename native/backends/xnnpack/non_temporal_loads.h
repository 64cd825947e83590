// Whether weights are read by non-temporal loads, past the caches: XNNPACK asks, as edgewise builds
// it, see
// cmake/xnnpack_non_temporal_kernel.h.
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

  // How often XNNPACK asked, and was told to use non-temporal loads. Of this thread; for tests.
  static size_t answers();

 private:
  const bool before_;
};

}  // namespace edgewise::xnnpack
