// Arrays of the caller's, read where they lie: numpy arrays and other buffers, and
// anything with `__dlpack__` on the CPU.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "edgewise/tensor.h"

namespace edgewise::python {

struct ArrayView {
  const std::byte* data = nullptr;
  ScalarType type = ScalarType::kFloat;
  size_t rank = 0;
  std::array<int64_t, kMaxDims> sizes{};
  std::array<int64_t, kMaxDims> strides{};  // in bytes; may be negative or zero
  bool is_read_only = false;
  nanobind::object owner;  // keeps the memory alive

  std::span<const int64_t> shape() const { return {sizes.data(), rank}; }
  size_t numel() const;
  // Whether the elements lie densely in the order that `dim_order` gives.
  bool is_dense(std::span<const uint8_t> dim_order) const;
  // Whether elements share memory, as those of a broadcast array do.
  bool overlaps() const;
};

// Reads `object`, which `where` ("[execute] input 0") names in errors. Needs the GIL.
// Raises InvalidArgumentError for what is no array, lies on another device, or has
// elements of a type that the runtime does not hold.
ArrayView view_array(nanobind::handle object, const std::string& where);

// Writes the elements densely to `to` in the order that `dim_order` gives. Without the GIL.
void copy_dense(const ArrayView& from, std::span<const uint8_t> dim_order, void* to);
// Resizes `tensor` to the shape of `array` and copies its elements there. With the GIL; `where` as
// view_array, `code`: of an array that does not fit. The tensor must be writable.
Status store_array(nanobind::handle array, const std::string& where, Code code, Tensor* tensor);
// The way back, into the caller's array, which must not be read-only.
void fill_from_dense(const ArrayView& to, std::span<const uint8_t> dim_order, const void* from);

}  // namespace edgewise::python
