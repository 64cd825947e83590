// Vectors of 16 floats for functions with EDGEWISE_CLONES: compilers split them where registers
// are narrower. Never passed between functions that are not inlined.
#pragma once

#include <cstdint>
#include <cstring>

namespace edgewise {

inline constexpr int64_t kLanes = 16;

typedef float FloatVector __attribute__((vector_size(kLanes * sizeof(float))));
typedef int32_t IntVector __attribute__((vector_size(kLanes * sizeof(int32_t))));
typedef float Half __attribute__((vector_size(8 * sizeof(float))));
typedef float Quarter __attribute__((vector_size(4 * sizeof(float))));

#define EDGEWISE_INLINE [[gnu::always_inline]] inline

EDGEWISE_INLINE void get(const float* from, FloatVector& lanes) {
  std::memcpy(&lanes, from, sizeof(lanes));
}
EDGEWISE_INLINE void put(const FloatVector& lanes, float* to) {
  std::memcpy(to, &lanes, sizeof(lanes));
}

EDGEWISE_INLINE void fold(const FloatVector& lanes, Quarter& sums) {
  const Half half = __builtin_shufflevector(lanes, lanes, 0, 1, 2, 3, 4, 5, 6, 7) +
                    __builtin_shufflevector(lanes, lanes, 8, 9, 10, 11, 12, 13, 14, 15);
  sums = __builtin_shufflevector(half, half, 0, 1, 2, 3) +
         __builtin_shufflevector(half, half, 4, 5, 6, 7);
}

// The sum of the lanes.
EDGEWISE_INLINE float sum_of(const FloatVector& lanes) {
  Quarter quarter;
  fold(lanes, quarter);
  return (quarter[0] + quarter[1]) + (quarter[2] + quarter[3]);
}

// e^x for x <= 0, relative error below 2e-7; 0 below -87.
EDGEWISE_INLINE void power_of_e(FloatVector& x) {
  const IntVector is_small = x < -87.0f;
  const FloatVector whole = (x * 1.44269504f + 12582912.0f) - 12582912.0f;
  const FloatVector rest = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
  FloatVector sum = rest * (1.0f / 5040) + 1.0f / 720;
  sum = sum * rest + 1.0f / 120;
  sum = sum * rest + 1.0f / 24;
  sum = sum * rest + 1.0f / 6;
  sum = sum * rest + 0.5f;
  sum = sum * rest + 1.0f;
  sum = sum * rest + 1.0f;
  const IntVector exponent = __builtin_convertvector(whole, IntVector);
  const IntVector bits = (IntVector)sum + (exponent << 23);
  x = (FloatVector)(bits & ~is_small);
}

}  // namespace edgewise
