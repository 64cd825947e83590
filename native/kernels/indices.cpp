#include "indices.h"

#include <cstring>

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

void Indices::gather(const View& source, size_t along, int64_t count, std::byte* target) const {
  size_t part = element_size(source.type);
  int64_t outer = 1;
  for (size_t d = 0; d < along; ++d) outer *= source.sizes[d];
  for (size_t d = along + 1; d < source.sizes.size(); ++d) {
    part *= static_cast<size_t>(source.sizes[d]);
  }
  const size_t whole = part * static_cast<size_t>(source.sizes[along]);
  if (part == 0) return;
  for (int64_t o = 0; o < outer; ++o) {
    const std::byte* from = source.data + static_cast<size_t>(o) * whole;
    for (int64_t i = 0; i < count; ++i, target += part) {
      const std::byte* at = from + static_cast<size_t>(values_[i]) * part;
      if (part == 4) {
        std::memcpy(target, at, 4);
      } else {
        std::memcpy(target, at, part);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace edgewise
