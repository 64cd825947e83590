// A tensor as kernels and delegates see it: type, shape, order of dimensions, and a
// pointer to memory that somebody else owns (the file, a planned arena, the caller),
// or that the tensor's `DynamicBuffer` holds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "edgewise/scalar_type.h"
#include "edgewise/status.h"

namespace edgewise {

#ifdef EDGEWISE_BARE_METAL
inline constexpr size_t kMaxDims = 8;  // every tensor has room for them
#else
inline constexpr size_t kMaxDims = 16;
#endif

// XNNPACK's kernels may read this far past the end of a tensor. Every buffer that the
// runtime allocates or maps is followed by at least as many readable bytes.
inline constexpr size_t kReadPadding = 128;
inline constexpr size_t kBufferAlignment = 64;

enum class Dynamism : uint8_t {
  kStatic = 0,          // the shape never changes
  kDynamicBound = 1,    // any shape whose bytes fit the planned memory
  kDynamicUnbound = 2,  // memory is allocated when the shape is known
};

// Memory of a tensor without a plan; grows on resize, freed by `release`.
class DynamicBuffer {
 public:
  // `limit`: the most bytes that it may grow to; 0: no bound.
  explicit DynamicBuffer(size_t limit = 0) : limit_(limit) {}
  ~DynamicBuffer();
  DynamicBuffer(const DynamicBuffer&) = delete;
  DynamicBuffer& operator=(const DynamicBuffer&) = delete;

  // At least `bytes`, aligned to kBufferAlignment and followed by kReadPadding
  // readable bytes. Contents are not kept.
  Status reserve(size_t bytes);
  void release();
  void* data() const { return data_; }
  size_t capacity() const { return capacity_; }
  size_t limit() const { return limit_; }

 private:
  void* data_ = nullptr;
  size_t capacity_ = 0;
  size_t limit_ = 0;
};

class Tensor {
 public:
  Tensor() = default;

  // `dim_order` lists dimensions from outermost to innermost; empty means contiguous.
  // Fails on more than kMaxDims dimensions, a negative size, a dim_order that is no
  // permutation, an unknown type, or a byte size beyond 2^62 (2^30
  // on 32-bit machines).
  static Result<Tensor> make(ScalarType type, std::span<const int64_t> sizes,
                             std::span<const uint8_t> dim_order, void* data, size_t capacity_bytes,
                             Dynamism dynamism);

  ScalarType type() const { return type_; }
  size_t rank() const { return rank_; }
  std::span<const int64_t> sizes() const { return {sizes_.data(), rank_}; }
  std::span<const uint8_t> dim_order() const { return {dim_order_.data(), rank_}; }
  // In elements.
  std::span<const int64_t> strides() const { return {strides_.data(), rank_}; }
  int64_t size(size_t dim) const { return sizes_[dim]; }
  int64_t numel() const { return numel_; }
  size_t nbytes() const { return static_cast<size_t>(numel_) * element_size(type_); }
  bool is_contiguous() const;  // dim_order is 0, 1, 2, ...
  // False for constants, which lie in read-only memory: resize() refuses them, so who
  // resizes an output before writing it needs no further check.
  bool is_writable() const { return writable_; }
  void set_writable(bool writable) { writable_ = writable; }
  Dynamism dynamism() const { return dynamism_; }
  size_t capacity() const { return buffer_ ? buffer_->capacity() : capacity_; }

  template <typename T>
  T* data() const {
    return static_cast<T*>(data_);
  }

  // Gives the tensor another shape of the same rank, dim_order kept. A static tensor
  // takes only its own shape; a bound one only what fits its memory; an unbound one
  // allocates. Contents are undefined afterwards where the shape changed.
  Status resize(std::span<const int64_t> sizes);

  // Points the tensor at the caller's memory, which must outlive its use.
  void set_data(void* data, size_t capacity_bytes) {
    data_ = data;
    capacity_ = capacity_bytes;
  }
  void set_buffer(std::shared_ptr<DynamicBuffer> buffer) { buffer_ = std::move(buffer); }
  DynamicBuffer* buffer() const { return buffer_.get(); }

  // "float32[1, 3, 224, 224]"
  std::string describe() const;

 private:
  Status set_sizes(std::span<const int64_t> sizes);

  void* data_ = nullptr;
  size_t capacity_ = 0;
  std::shared_ptr<DynamicBuffer> buffer_;
  std::array<int64_t, kMaxDims> sizes_{};
  std::array<int64_t, kMaxDims> strides_{};
  std::array<uint8_t, kMaxDims> dim_order_{};
  size_t rank_ = 0;
  int64_t numel_ = 1;
  ScalarType type_ = ScalarType::kFloat;
  Dynamism dynamism_ = Dynamism::kStatic;
  bool writable_ = true;
};

}  // namespace edgewise
