#include "indices.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {

Status Indices::read(const Tensor& tensor, int64_t size, Negative negative) {
  if (tensor.type() != ScalarType::kLong && tensor.type() != ScalarType::kInt) {
    return error(Code::kInvalidArgument, "an index is int64 or int32; got %s",
                 tensor.describe().c_str());
  }
  // A copy: what is checked must not change when a program's outputs are written.
  count_ = tensor.numel();
  EDGEWISE_RETURN_IF_ERROR(values_.reserve(count_));
  const View source = view_of(tensor);
  const View target{reinterpret_cast<std::byte*>(values_.data()), ScalarType::kLong, source.sizes,
                    contiguous_strides(source.sizes)};
  EDGEWISE_RETURN_IF_ERROR(assign(target, source));
  const int64_t least = negative == Negative::kFromEnd ? -size : 0;
  int64_t outside = 0, below = 0;
  for (int64_t i = 0; i < count_; ++i) {
    const int64_t value = values_[i];
    outside |= (value < least) | (value >= size);
    below |= value < 0;
  }
  for (int64_t i = 0; outside && i < count_; ++i) {
    if (values_[i] >= least && values_[i] < size) continue;
    return error(Code::kInvalidArgument, "an index must be in [%lld, %lld]; got %lld",
                 static_cast<long long>(least), static_cast<long long>(size - 1),
                 static_cast<long long>(values_[i]));
  }
  for (int64_t i = 0; below && i < count_; ++i) values_[i] += values_[i] < 0 ? size : 0;
  return {};
}

}  // namespace HWY_NAMESPACE
}  // namespace edgewise
