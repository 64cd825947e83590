#include "backends/xnnpack/shape.h"

#include <algorithm>

#include "core/checked.h"

namespace edgewise::xnnpack {

size_t Shape::leading(size_t count) const {
  size_t product = 1;
  for (size_t i = 0; i < count; ++i) product *= dims[i];
  return product;
}

size_t Shape::elements() const { return leading(rank); }

bool Shape::fits() const {
  size_t product = 1;
  for (size_t i = 0; i < rank; ++i) {
    if (dims[i] >= kMaxDim) return false;
    // A zero must not hide that the other sizes are absurd.
    if (!checked_mul(product, std::max<size_t>(dims[i], 1), &product)) return false;
    if (product > kMaxElements) return false;
  }
  return true;
}

bool Shape::has_zero() const {
  return std::find(dims.begin(), dims.begin() + rank, size_t{0}) != dims.begin() + rank;
}

std::string Shape::text() const {
  std::string text = "[";
  for (size_t i = 0; i < rank; ++i) text += (i == 0 ? "" : ", ") + std::to_string(dims[i]);
  return text + "]";
}

bool Shape::operator==(const Shape& other) const {
  return rank == other.rank && std::equal(dims.begin(), dims.begin() + rank, other.dims.begin());
}

size_t byte_size(DataType type, const Shape& shape) {
  const size_t bits = bits_of(type);
  if (bits >= 8) return shape.elements() * (bits / 8);
  const size_t row = (shape.last() * bits + 7) / 8;
  return shape.leading(shape.rank == 0 ? 0 : shape.rank - 1) * row;
}

}  // namespace edgewise::xnnpack
