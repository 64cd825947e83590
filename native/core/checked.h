// Arithmetic on numbers from a file: false where the result does not fit.
#pragma once

#include <cstddef>
#include <cstdint>

namespace edgewise {

// More bytes than any real program needs at once; of those that 32-bit pointers reach, a quarter.
inline constexpr size_t kMostBytes = size_t{1} << (sizeof(size_t) >= 8 ? 40 : 30);

template <typename T>
[[nodiscard]] bool checked_add(T a, T b, T* result) {
  return !__builtin_add_overflow(a, b, result);
}

template <typename T>
[[nodiscard]] bool checked_mul(T a, T b, T* result) {
  return !__builtin_mul_overflow(a, b, result);
}

// Whether [offset, offset + size) lies in [0, total).
[[nodiscard]] inline bool in_range(uint64_t offset, uint64_t size, uint64_t total) {
  return offset <= total && size <= total - offset;
}

// `value` up to the next multiple of `alignment`, a power of two.
[[nodiscard]] inline bool align_up(size_t value, size_t alignment, size_t* result) {
  size_t sum = 0;
  if (!checked_add(value, alignment - 1, &sum)) return false;
  *result = sum & ~(alignment - 1);
  return true;
}

}  // namespace edgewise
