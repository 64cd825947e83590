// Strided views of tensors, the walk over several of them at once, and the copy from
// one to another. Every kernel that only moves elements is a view and a copy.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <new>
#include <optional>
#include <span>
#include <string>

#include "element.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {

// Sizes or strides. The caller checks a rank against kMaxDims before adding dimensions.
class Dims {
 public:
  // Only values below size() are set, and copied: a small operator's time is in such things.
  Dims() {}                                                        // NOLINT: values_
  Dims(std::span<const int64_t> values) : count_(values.size()) {  // NOLINT: implicit by design
    for (size_t i = 0; i < count_; ++i) values_[i] = values[i];
  }
  Dims(const Dims& other) : Dims(other.span()) {}
  Dims& operator=(const Dims& other) {
    count_ = other.count_;
    for (size_t i = 0; i < count_; ++i) values_[i] = other.values_[i];
    return *this;
  }

  size_t size() const { return count_; }
  int64_t& operator[](size_t index) { return values_[index]; }
  int64_t operator[](size_t index) const { return values_[index]; }
  void push(int64_t value) { values_[count_++] = value; }
  void insert(size_t index, int64_t value);
  void erase(size_t index);
  std::span<const int64_t> span() const { return {values_.data(), count_}; }
  operator std::span<const int64_t>() const { return span(); }  // NOLINT: implicit by design
  int64_t product() const;
  bool operator==(const Dims& other) const { return std::ranges::equal(span(), other.span()); }

 private:
  std::array<int64_t, kMaxDims + 1> values_;
  size_t count_ = 0;
};

// Row-major strides of `sizes`.
Dims contiguous_strides(const Dims& sizes);

struct View {
  class Walk;

  std::byte* data = nullptr;  // first element; only written to in views of outputs
  ScalarType type = ScalarType::kFloat;
  Dims sizes;
  Dims strides;  // in elements; 0 repeats, negative goes backwards

  int64_t numel() const { return sizes.product(); }
  std::byte* at(int64_t elements) const {
    return data + elements * static_cast<int64_t>(element_size(type));
  }
  void move(int64_t elements) { data = at(elements); }
  bool is_row_major() const;
  // One element of dimension `dim`, which is dropped.
  View select(size_t dim, int64_t index) const;
  // `count` elements of dimension `dim` from `start`, `step` apart.
  View narrow(size_t dim, int64_t start, int64_t count, int64_t step = 1) const;
  // Repeats dimensions of size 1 to fit `sizes`, which broadcast() has accepted.
  View expand(const Dims& sizes) const;
};

// Counts through the indices of a shape in row-major order.
class View::Walk {
 public:
  explicit Walk(const Dims& sizes) : sizes_(sizes), index_(sizes) {
    for (size_t dim = 0; dim < sizes.size(); ++dim) index_[dim] = 0;
  }
  int64_t operator[](size_t dim) const { return index_[dim]; }
  // False after the last one.
  bool next() {
    for (size_t dim = sizes_.size(); dim-- > 0;) {
      if (++index_[dim] < sizes_[dim]) return true;
      index_[dim] = 0;
    }
    return false;
  }

 private:
  Dims sizes_, index_;
};

View view_of(const Tensor& tensor);

// A Scalar as an operand without dimensions. Keep it while the view is used.
class ScalarView {
 public:
  explicit ScalarView(const Scalar& scalar = {});
  View view();
  // Holds the one element of `view` instead, as a number of a type that may be narrower.
  View narrow(const View& view, ScalarType type);

 private:
  alignas(8) std::byte bytes_[8];
  ScalarType type_;
};

// Extends `sizes` to the broadcast of both; fails with a message.
Status broadcast(std::span<const int64_t> other, Dims& sizes);

// Takes a shape that a file gave: checks rank, signs and the number of elements.
Status to_sizes(std::span<const int64_t> values, Dims& sizes);

// -rank <= dim < rank, or rank 0 and dim 0 or -1; makes it non-negative.
Status normalize_dim(int64_t& dim, size_t rank);

// The part of a view that slice, select or their scatters are about. `dim` and indices
// may be negative, as in PyTorch.
Status slice(View& view, int64_t dim, std::optional<int64_t> start, std::optional<int64_t> end,
             int64_t step);
Status select(View& view, int64_t dim, int64_t index);
Status check_has_dims(const View& view);

std::string describe(std::span<const int64_t> sizes);

// Copies `source` to `target`, of the same sizes, converting types.
Status assign(const View& target, const View& source);
// Copies in row-major order between views of as many elements but of any shapes.
Status assign_linear(const View& target, const View& source);
// Resizes `out` to the view's sizes and copies.
Status copy_to(Tensor* out, const View& source);
Status fill(const View& target, const Scalar& value);

// Memory for a kernel's duration. Never throws.
template <typename T>
class Scratch {
 public:
  Scratch() = default;
  ~Scratch() { ::operator delete (data_, std::align_val_t{64}); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // Once. Contents are undefined.
  Status reserve(int64_t count) {
    size_t bytes = 0;
    if (count < 0 || __builtin_mul_overflow(count, sizeof(T), &bytes) || bytes > SIZE_MAX / 4) {
      return error(Code::kOutOfMemory, "a kernel needs too much working memory");
    }
    data_ = static_cast<T*>(::operator new (bytes + 64, std::align_val_t{64}, std::nothrow));
    if (!data_) {
      return error(Code::kOutOfMemory, "no %zu bytes of working memory for a kernel", bytes);
    }
    return {};
  }
  T* data() const { return data_; }
  T& operator[](int64_t index) const { return data_[index]; }

 private:
  T* data_ = nullptr;
};

// The walk over N operands of the same sizes, in an order that suits operand 0. Calls
// `f(offsets, count, steps)` for runs: element i of operand k is at offsets[k] + i * steps[k].
template <size_t N>
class Loop {
 public:
  using Offsets = std::array<int64_t, N>;

  Loop(const Dims& sizes, std::initializer_list<const Dims*> strides) {  // NOLINT: sizes_, steps_
    empty_ = sizes.product() == 0;
    for (size_t dim = 0; dim < sizes.size(); ++dim) {
      if (sizes[dim] == 1) continue;
      Offsets steps{};
      size_t operand = 0;
      for (const Dims* of : strides) steps[operand++] = (*of)[dim];
      insert(sizes[dim], steps);
    }
    merge();
  }

  // Elements of a run.
  int64_t length() const { return rank_ == 0 ? 1 : sizes_[rank_ - 1]; }

  template <typename F>
  void run(F&& f) const {
    if (empty_) return;
    Offsets offsets{};
    if (rank_ == 0) return f(offsets, int64_t{1}, Offsets{});
    std::array<int64_t, kMaxDims> index;
    const size_t inner = rank_ - 1;
    std::fill_n(index.begin(), inner, 0);
    while (true) {
      f(offsets, sizes_[inner], steps_[inner]);
      size_t dim = inner;
      while (true) {
        if (dim == 0) return;
        --dim;
        for (size_t k = 0; k < N; ++k) offsets[k] += steps_[dim][k];
        if (++index[dim] < sizes_[dim]) break;
        for (size_t k = 0; k < N; ++k) offsets[k] -= steps_[dim][k] * sizes_[dim];
        index[dim] = 0;
      }
    }
  }

 private:
  static int64_t magnitude(int64_t value) { return value < 0 ? -value : value; }

  // Keeps operand 0's larger strides outside; equal ones stay in order.
  void insert(int64_t size, const Offsets& steps) {
    size_t at = rank_++;
    while (at > 0 && magnitude(steps_[at - 1][0]) < magnitude(steps[0])) {
      sizes_[at] = sizes_[at - 1];
      steps_[at] = steps_[at - 1];
      --at;
    }
    sizes_[at] = size;
    steps_[at] = steps;
  }

  void merge() {
    size_t kept = 0;
    for (size_t dim = 1; dim < rank_; ++dim) {
      bool joins = true;
      for (size_t k = 0; k < N; ++k) {
        joins = joins && steps_[kept][k] == steps_[dim][k] * sizes_[dim];
      }
      if (joins) {
        sizes_[kept] *= sizes_[dim];
      } else {
        sizes_[++kept] = sizes_[dim];
      }
      steps_[kept] = steps_[dim];
    }
    if (rank_ > 0) rank_ = kept + 1;
  }

  std::array<int64_t, kMaxDims + 1> sizes_;  // those below rank_
  std::array<Offsets, kMaxDims + 1> steps_;
  size_t rank_ = 0;
  bool empty_ = false;
};

}  // namespace HWY_NAMESPACE
}  // namespace edgewise
