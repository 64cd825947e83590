// A tensor's sizes in XNNPACK's terms: at most XNN_MAX_TENSOR_DIMS of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "backends/xnnpack/datatype.h"

namespace edgewise::xnnpack {

inline constexpr size_t kMaxRank = XNN_MAX_TENSOR_DIMS;
// Beyond these, sizes are taken for damage. The bytes of as many elements fit a size_t.
inline constexpr size_t kMaxDim = size_t{1} << (sizeof(size_t) >= 8 ? 31 : 28);
inline constexpr size_t kMaxElements = size_t{1} << (sizeof(size_t) >= 8 ? 40 : 28);

struct Shape {
  std::array<size_t, kMaxRank> dims{};
  size_t rank = 0;

  size_t operator[](size_t index) const { return dims[index]; }
  size_t& operator[](size_t index) { return dims[index]; }
  size_t last() const { return rank == 0 ? 1 : dims[rank - 1]; }
  // Only for shapes that fits() has approved.
  size_t elements() const;
  // Product of the first `count` sizes.
  size_t leading(size_t count) const;
  // Whether the sizes, and the number of elements, are within the limits.
  bool fits() const;
  bool has_zero() const;
  std::string text() const;  // "[1, 3, 224, 224]"

  bool operator==(const Shape& other) const;
};

// Bytes of a tensor; 4-bit elements fill up the last byte of each row (last dimension).
size_t byte_size(DataType type, const Shape& shape);

}  // namespace edgewise::xnnpack
