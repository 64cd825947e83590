#include "indices.h"

#include <cstring>
#include <span>

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

namespace {

// Indices that follow one another.
struct Run {
  int64_t first = 0;
  size_t count = 0;
};

// Parts of `part` bytes.
void gather_part_by_part(size_t part, const std::byte* source, std::span<const Run> runs,
                         std::byte* target) {
  for (const Run& run : runs) {
    std::memcpy(target, source + static_cast<size_t>(run.first) * part, run.count * part);
    target += run.count * part;
  }
}

// A single part is one instruction.
template <size_t kPart>
void gather_small_parts(size_t /*part*/, const std::byte* source, std::span<const Run> runs,
                        std::byte* target) {
  for (const Run& run : runs) {
    const std::byte* from = source + static_cast<size_t>(run.first) * kPart;
    std::memcpy(target, from, kPart);
    target += kPart;
    if (run.count == 1) continue;
    std::memcpy(target, from + kPart, (run.count - 1) * kPart);
    target += (run.count - 1) * kPart;
  }
}

}  // namespace

Status Indices::gather(const View& source, size_t along, int64_t count, std::byte* target) const {
  size_t part = element_size(source.type);
  int64_t outer = 1;
  for (size_t d = 0; d < along; ++d) outer *= source.sizes[d];
  for (size_t d = along + 1; d < source.sizes.size(); ++d) {
    part *= static_cast<size_t>(source.sizes[d]);
  }
  if (part == 0 || outer == 0 || count == 0) return {};
  Scratch<Run> runs;
  EDGEWISE_RETURN_IF_ERROR(runs.reserve(count));
  size_t run_count = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (i > 0 && values_[i] == values_[i - 1] + 1) {
      ++runs[static_cast<int64_t>(run_count) - 1].count;
    } else {
      runs[static_cast<int64_t>(run_count++)] = {values_[i], 1};
    }
  }
  const auto move = part == 1   ? gather_small_parts<1>
                    : part == 2 ? gather_small_parts<2>
                    : part == 4 ? gather_small_parts<4>
                    : part == 8 ? gather_small_parts<8>
                                : gather_part_by_part;
  const size_t whole = part * static_cast<size_t>(source.sizes[along]);
  const std::byte* from = source.data;
  for (int64_t o = 0; o < outer; ++o, from += whole, target += static_cast<size_t>(count) * part) {
    move(part, from, {runs.data(), run_count}, target);
  }
  return {};
}

}  // namespace HWY_NAMESPACE
}  // namespace edgewise
