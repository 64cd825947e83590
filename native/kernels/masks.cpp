// Results whose size or contents depend on masks and counts: masked_select, masked_scatter,
// repeat_interleave.
#include <cstring>

#include "compute_tensor.h"
#include "cpu_dispatch.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

// Both broadcast to the same sizes, row-major: the mask as bytes, the tensor as it is.
struct Masked {
  Dims sizes;
  View self;
  Scratch<uint8_t> mask;

  Status read(const Tensor& tensor, const Tensor& chosen) {
    if (chosen.type() != ScalarType::kBool) {
      return error(Code::kInvalidArgument, "a mask is bool; got %s", chosen.describe().c_str());
    }
    sizes = Dims(tensor.sizes());
    EDGEWISE_RETURN_IF_ERROR(broadcast(chosen.sizes(), sizes));
    EDGEWISE_RETURN_IF_ERROR(
        to_sizes(std::vector<int64_t>(sizes.span().begin(), sizes.span().end()), sizes));
    self = view_of(tensor).expand(sizes);
    EDGEWISE_RETURN_IF_ERROR(mask.reserve(sizes.product()));
    return assign({reinterpret_cast<std::byte*>(mask.data()), ScalarType::kBool, sizes,
                   contiguous_strides(sizes)},
                  view_of(chosen).expand(sizes));
  }
};

int64_t offset_of(const View& view, const View::Walk& walk) {
  int64_t offset = 0;
  for (size_t dim = 0; dim < view.sizes.size(); ++dim) offset += walk[dim] * view.strides[dim];
  return offset;
}

// Row-major elements that the mask chooses move from `from` on to `to` on: one side goes on with
// every element of the mask, the other with the chosen ones.
template <typename Unit, bool kSelect>
void move_chosen(const uint8_t* mask, int64_t count, const std::byte* from, std::byte* to) {
  const auto* source = reinterpret_cast<const Unit*>(from);
  auto* target = reinterpret_cast<Unit*>(to);
  int64_t chosen = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (!mask[i]) continue;
    if constexpr (kSelect) {
      target[chosen++] = source[i];
    } else {
      target[i] = source[chosen++];
    }
  }
}

template <bool kSelect>
void move_chosen(size_t size, const uint8_t* mask, int64_t count, const std::byte* from,
                 std::byte* to) {
  if (size == 1) return move_chosen<uint8_t, kSelect>(mask, count, from, to);
  if (size == 2) return move_chosen<uint16_t, kSelect>(mask, count, from, to);
  if (size == 4) return move_chosen<uint32_t, kSelect>(mask, count, from, to);
  move_chosen<uint64_t, kSelect>(mask, count, from, to);
}

Status masked_select(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const Tensor* mask = context.tensor(1);
  Tensor* out = output(context, 2);
  if (!context.ok()) return context.status();
  Masked masked;
  EDGEWISE_TRY(masked.read(*self, *mask));
  if (out->type() != self->type()) {
    return context.fail(Code::kInvalidArgument, "types are equal; got %s and %s",
                        self->describe().c_str(), out->describe().c_str());
  }
  const int64_t numel = masked.sizes.product();
  int64_t count = 0;
  for (int64_t i = 0; i < numel; ++i) count += masked.mask[i] != 0;
  EDGEWISE_TRY(out->resize(std::array{count}));
  if (count == 0) return context.status();
  const size_t bytes = element_size(self->type());
  auto* to = out->data<std::byte>();
  if (masked.self.is_row_major()) {
    move_chosen<true>(bytes, masked.mask.data(), numel, masked.self.data, to);
    return context.status();
  }
  View::Walk walk(masked.sizes);
  for (int64_t i = 0; i < numel; ++i, walk.next()) {
    if (!masked.mask[i]) continue;
    std::memcpy(to, masked.self.at(offset_of(masked.self, walk)), bytes);
    to += bytes;
  }
  return context.status();
}

Status masked_scatter(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const Tensor* mask = context.tensor(1);
  const Tensor* source = context.tensor(2);
  Tensor* out = output(context, 3);
  if (!context.ok()) return context.status();
  Masked masked;
  EDGEWISE_TRY(masked.read(*self, *mask));
  if (out->type() != self->type() || source->type() != self->type()) {
    return context.fail(Code::kInvalidArgument, "types are equal; got %s, %s and %s",
                        self->describe().c_str(), source->describe().c_str(),
                        out->describe().c_str());
  }
  const int64_t numel = masked.sizes.product();
  int64_t count = 0;
  for (int64_t i = 0; i < numel; ++i) count += masked.mask[i] != 0;
  if (count > source->numel()) {
    return context.fail(Code::kInvalidArgument,
                        "the source has an element for each of %lld; got %s",
                        static_cast<long long>(count), source->describe().c_str());
  }
  EDGEWISE_TRY(copy_to(out, masked.self));
  if (count == 0) return context.status();
  const size_t bytes = element_size(self->type());
  const View target = view_of(*out), from = view_of(*source);
  if (target.is_row_major() && from.is_row_major()) {
    move_chosen<false>(bytes, masked.mask.data(), numel, from.data, target.data);
    return context.status();
  }
  View::Walk walk(masked.sizes), next(from.sizes);
  for (int64_t i = 0; i < numel; ++i, walk.next()) {
    if (!masked.mask[i]) continue;
    std::memcpy(target.at(offset_of(target, walk)), from.at(offset_of(from, next)), bytes);
    next.next();
  }
  return context.status();
}

// Index i as many times as repeats[i] says.
Status repeat_interleave(KernelContext& context) {
  const Tensor* repeats = context.tensor(0);
  const std::optional<int64_t> expected = context.optional_integer(1);
  Tensor* out = output(context, 2);
  if (!context.ok()) return context.status();
  const bool integers = repeats->type() == ScalarType::kLong || repeats->type() == ScalarType::kInt;
  if (repeats->rank() != 1 || !integers || out->type() != repeats->type()) {
    return context.fail(Code::kInvalidArgument,
                        "takes a list of integers, with an output of their type; got %s and %s",
                        repeats->describe().c_str(), out->describe().c_str());
  }
  ComputeInput<int64_t> counts;
  EDGEWISE_TRY(counts.read(view_of(*repeats), true));
  int64_t total = 0;
  bool fits = true;
  for (int64_t i = 0; i < repeats->numel(); ++i) {
    fits = fits && counts.data[i] >= 0 && !__builtin_add_overflow(total, counts.data[i], &total);
  }
  if (!fits || (expected && *expected != total)) {
    return context.fail(Code::kInvalidArgument,
                        "repeats are not negative and add up to output_size; got a sum of %lld",
                        static_cast<long long>(total));
  }
  EDGEWISE_TRY(out->resize(std::array{total}));
  ComputeOutput<int64_t> result;
  EDGEWISE_TRY(result.prepare(view_of(*out), true));
  int64_t* to = result.data;
  for (int64_t i = 0; i < repeats->numel(); ++i) to = std::fill_n(to, counts.data[i], i);
  return finish(context, result.finish());
}

constexpr KernelEntry kKernels[] = {
    {"aten::masked_select.out", 3, masked_select},
    {"aten::masked_scatter.out", 4, masked_scatter},
    {"aten::repeat_interleave.Tensor_out", 3, repeat_interleave},
};
const KernelTable table(kEveryLevel, kSelected<kKernels>);

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace edgewise
