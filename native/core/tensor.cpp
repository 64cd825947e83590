#include "edgewise/tensor.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "checked.h"
#include "format.h"
#include "memory.h"

namespace edgewise {

namespace {

// A quarter of what there are addresses for: 2^62 on 64-bit machines.
constexpr int64_t kMaxBytes = std::numeric_limits<std::ptrdiff_t>::max() / 2 + 1;

}  // namespace

DynamicBuffer::~DynamicBuffer() { release(); }

Status DynamicBuffer::reserve(size_t bytes) {
  if (data_ != nullptr && bytes <= capacity_) return Status::ok_status();
  if (limit_ != 0 && bytes > limit_) {
    return error(Code::kOutOfMemory, "[tensor] max_memory is %zu bytes; got a tensor of %zu",
                 limit_, bytes);
  }
  void* data = allocate_padded(bytes);
  if (data == nullptr) {
    return error(Code::kOutOfMemory, "[tensor] %zu bytes could not be allocated", bytes);
  }
  release();
  data_ = data;
  capacity_ = bytes;
  return Status::ok_status();
}

void DynamicBuffer::release() {
  free_padded(data_, capacity_);
  data_ = nullptr;
  capacity_ = 0;
}

Result<Tensor> Tensor::make(ScalarType type, std::span<const int64_t> sizes,
                            std::span<const uint8_t> dim_order, void* data, size_t capacity_bytes,
                            Dynamism dynamism) {
  if (element_size(type) == 0) {
    return error(Code::kUnsupported, "[tensor] element type %d is not known",
                 static_cast<int>(type));
  }
  if (sizes.size() > kMaxDims) {
    return error(Code::kUnsupported, "[tensor] at most %zu dimensions; got %zu", kMaxDims,
                 sizes.size());
  }
  Tensor tensor;
  tensor.type_ = type;
  tensor.rank_ = sizes.size();
  tensor.data_ = data;
  tensor.capacity_ = capacity_bytes;
  tensor.dynamism_ = dynamism;
  if (dim_order.empty()) {
    for (size_t i = 0; i < tensor.rank_; ++i) tensor.dim_order_[i] = static_cast<uint8_t>(i);
  } else {
    if (dim_order.size() != tensor.rank_) {
      return error(Code::kInvalidArgument,
                   "[tensor] dim_order must have one entry for each of %zu dimensions; got %zu",
                   tensor.rank_, dim_order.size());
    }
    std::array<bool, kMaxDims> seen{};
    for (size_t i = 0; i < tensor.rank_; ++i) {
      const uint8_t dim = dim_order[i];
      if (dim >= tensor.rank_ || seen[dim]) {
        return error(Code::kInvalidArgument,
                     "[tensor] dim_order must be a permutation of 0..%zu; entry %zu is %d",
                     tensor.rank_ - 1, i, static_cast<int>(dim));
      }
      seen[dim] = true;
      tensor.dim_order_[i] = dim;
    }
  }
  EDGEWISE_RETURN_IF_ERROR(tensor.set_sizes(sizes));
  return tensor;
}

Status Tensor::set_sizes(std::span<const int64_t> sizes) {
  // Computed on the side first: a failure leaves the tensor as it was.
  std::array<int64_t, kMaxDims> strides{};
  int64_t stride = 1;  // of the next dimension outwards, with empty dimensions as 1
  bool empty = false;
  for (size_t i = rank_; i-- > 0;) {
    const size_t dim = dim_order_[i];
    const int64_t size = sizes[dim];
    if (size < 0) {
      return error(Code::kInvalidArgument, "[tensor] sizes must not be negative; got %s",
                   format_sizes(sizes).c_str());
    }
    strides[dim] = stride;
    empty = empty || size == 0;
    if (!checked_mul(stride, std::max<int64_t>(size, 1), &stride)) {
      return error(Code::kInvalidArgument, "[tensor] %s has too many elements",
                   format_sizes(sizes).c_str());
    }
  }
  int64_t bytes = 0;
  if (!checked_mul(stride, static_cast<int64_t>(element_size(type_)), &bytes) ||
      bytes > kMaxBytes) {
    return error(Code::kInvalidArgument, "[tensor] %s has too many elements",
                 format_sizes(sizes).c_str());
  }
  std::copy(sizes.begin(), sizes.end(), sizes_.begin());
  strides_ = strides;
  numel_ = empty ? 0 : stride;
  return Status::ok_status();
}

bool Tensor::is_contiguous() const {
  for (size_t i = 0; i < rank_; ++i) {
    if (dim_order_[i] != i) return false;
  }
  return true;
}

Status Tensor::resize(std::span<const int64_t> sizes) {
  if (!writable_) {
    return error(Code::kInvalidArgument,
                 "[tensor] %s is a constant of the program; it cannot be "
                 "written",
                 describe().c_str());
  }
  if (std::ranges::equal(sizes, this->sizes())) {
    // Also the first allocation of an unbound tensor whose shape has no dimension.
    if (buffer_ == nullptr || data_ != nullptr) return Status::ok_status();
  } else if (sizes.size() != rank_) {
    return error(Code::kInvalidArgument, "[tensor] %s cannot become %s: the rank is fixed",
                 describe().c_str(), format_sizes(sizes).c_str());
  } else if (dynamism_ == Dynamism::kStatic) {
    return error(Code::kInvalidArgument,
                 "[tensor] %s cannot become %s: its shape is static; try exporting the model with "
                 "dynamic_shapes",
                 describe().c_str(), format_sizes(sizes).c_str());
  }
  Tensor resized = *this;
  EDGEWISE_RETURN_IF_ERROR(resized.set_sizes(sizes));
  if (buffer_ != nullptr) {
    EDGEWISE_RETURN_IF_ERROR(buffer_->reserve(resized.nbytes()));
    data_ = buffer_->data();
  } else if (resized.nbytes() > capacity_) {
    return error(Code::kInvalidArgument,
                 "[tensor] %s cannot become %s: %zu bytes are needed and %zu are planned",
                 describe().c_str(), format_sizes(sizes).c_str(), resized.nbytes(), capacity_);
  }
  sizes_ = resized.sizes_;
  strides_ = resized.strides_;
  numel_ = resized.numel_;
  return Status::ok_status();
}

std::string Tensor::describe() const {
  return std::string(to_string(type_)) + format_sizes(sizes());
}

}  // namespace edgewise
