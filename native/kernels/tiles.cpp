// The input several times, in a frame or shifted: repeat, constant_pad_nd, roll.
#include <algorithm>
#include <cstring>
#include <vector>

#include "cpu_dispatch.h"
#include "kernel_status.h"
#include "view.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

// A copy of the input at each of the output's tiles.
Status repeat(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const std::vector<int64_t> repeats = context.int_list(1);
  Tensor* out = output(context, 2);
  if (!context.ok()) return context.status();
  const View source = view_of(*self);
  if (repeats.size() < self->rank() || repeats.size() > kMaxDims) {
    return context.fail(Code::kInvalidArgument,
                        "repeats has a number for each dimension; got %s for %s",
                        describe(repeats).c_str(), self->describe().c_str());
  }
  const size_t added = repeats.size() - self->rank();
  std::vector<int64_t> wanted(repeats);
  for (size_t dim = 0; dim < wanted.size(); ++dim) {
    const int64_t size = dim < added ? 1 : source.sizes[dim - added];
    if (repeats[dim] < 0 || __builtin_mul_overflow(repeats[dim], size, &wanted[dim]))
      wanted[dim] = -1;
  }
  Dims sizes;
  EDGEWISE_TRY(to_sizes(wanted, sizes));
  EDGEWISE_TRY(out->resize(sizes));
  if (out->numel() == 0) return context.status();
  View target = view_of(*out);
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    target.sizes[dim] = dim < added ? 1 : source.sizes[dim - added];
  }
  std::vector<int64_t> index(sizes.size(), 0);
  const View expanded = source.expand(target.sizes);
  while (true) {
    View tile = target;
    for (size_t dim = 0; dim < index.size(); ++dim) {
      tile.move(index[dim] * target.sizes[dim] * target.strides[dim]);
    }
    EDGEWISE_TRY(assign(tile, expanded));
    size_t dim = index.size();
    while (dim > 0 && ++index[dim - 1] == repeats[dim - 1]) index[--dim] = 0;
    if (dim == 0) return context.status();
  }
}

Status constant_pad_nd(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const std::vector<int64_t> pad = context.int_list(1);
  const Scalar value = context.scalar(2);
  Tensor* out = output(context, 3);
  if (!context.ok()) return context.status();
  if (pad.size() % 2 != 0 || pad.size() / 2 > self->rank()) {
    return context.fail(Code::kInvalidArgument,
                        "pad has pairs (before, after) from the last dimension on; got %s for %s",
                        describe(pad).c_str(), self->describe().c_str());
  }
  View source = view_of(*self);
  std::vector<int64_t> wanted(self->sizes().begin(), self->sizes().end());
  std::vector<int64_t> start(wanted.size(), 0);
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    const size_t dim = wanted.size() - 1 - i;
    const int64_t before = pad[2 * i], after = pad[2 * i + 1];
    if (__builtin_add_overflow(wanted[dim], before, &wanted[dim]) ||
        __builtin_add_overflow(wanted[dim], after, &wanted[dim])) {
      wanted[dim] = -1;
    }
    // Negative padding cuts. What is too negative or too large to_sizes() refuses.
    const int64_t first =
        before < 0 ? std::min(-std::max(before, -source.sizes[dim]), source.sizes[dim]) : 0;
    int64_t count = source.sizes[dim] - first;
    if (after < 0) count += std::max(after, -count);
    source = source.narrow(dim, first, count);
    start[dim] = std::max<int64_t>(before, 0);
  }
  Dims sizes;
  EDGEWISE_TRY(to_sizes(wanted, sizes));
  EDGEWISE_TRY(out->resize(sizes));
  EDGEWISE_TRY(fill(view_of(*out), value));
  View target = view_of(*out);
  if (source.numel() == 0) return context.status();
  for (size_t dim = 0; dim < start.size(); ++dim) {
    target = target.narrow(dim, start[dim], source.sizes[dim]);
  }
  return finish(context, assign(target, source));
}

// Of all elements, in row-major order.
Status roll_flat(KernelContext& context, const Tensor* self, int64_t shift, Tensor* out) {
  EDGEWISE_TRY(out->resize(self->sizes()));
  const int64_t count = self->numel();
  if (count == 0) return context.status();
  const int64_t size = static_cast<int64_t>(element_size(self->type()));
  const int64_t by = (shift % count + count) % count;
  Scratch<std::byte> memory;
  EDGEWISE_TRY(memory.reserve(2 * count * size));
  const View source = view_of(*self);
  View line = source;
  line.data = memory.data();
  line.strides = contiguous_strides(line.sizes);
  EDGEWISE_TRY(assign(line, source));
  View rolled = line;
  rolled.move(count);
  std::memcpy(rolled.at(by), line.data, static_cast<size_t>((count - by) * size));
  std::memcpy(rolled.data, line.at(count - by), static_cast<size_t>(by * size));
  return finish(context, assign(view_of(*out), rolled));
}

Status roll(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const std::vector<int64_t> shifts = context.int_list(1), dims = context.int_list(2);
  Tensor* out = output(context, 3);
  if (!context.ok()) return context.status();
  if (dims.empty() && shifts.size() == 1) return roll_flat(context, self, shifts[0], out);
  if (shifts.size() != dims.size() || dims.size() > kMaxDims) {
    return context.fail(Code::kUnsupported, "one shift for each dimension; got %zu for %zu",
                        shifts.size(), dims.size());
  }
  EDGEWISE_TRY(out->resize(self->sizes()));
  if (self->numel() == 0 || self->rank() == 0) {
    return finish(context, assign(view_of(*out), view_of(*self)));
  }
  Dims shift(self->sizes());
  for (size_t dim = 0; dim < shift.size(); ++dim) shift[dim] = 0;
  for (size_t i = 0; i < dims.size(); ++i) {
    int64_t dim = dims[i];
    EDGEWISE_TRY(normalize_dim(dim, self->rank()));
    const size_t along = static_cast<size_t>(dim);
    const int64_t size = self->size(along);
    const int64_t by = (shifts[i] % size + size) % size;
    shift[along] = (shift[along] + by) % size;
  }
  // Every rolled dimension is cut in two; bit i of `part` says which half.
  std::vector<size_t> rolled;
  for (size_t dim = 0; dim < shift.size(); ++dim) {
    if (shift[dim] != 0) rolled.push_back(dim);
  }
  for (uint32_t part = 0; part < (1u << rolled.size()); ++part) {
    View source = view_of(*self), target = view_of(*out);
    for (size_t i = 0; i < rolled.size(); ++i) {
      const size_t dim = rolled[i];
      const int64_t by = shift[dim], kept = self->size(dim) - by;
      const bool wraps = part & (1u << i);
      source = source.narrow(dim, wraps ? kept : 0, wraps ? by : kept);
      target = target.narrow(dim, wraps ? 0 : by, wraps ? by : kept);
    }
    EDGEWISE_TRY(assign(target, source));
  }
  return context.status();
}

constexpr KernelEntry kKernels[] = {
    {"aten::repeat.out", 3, repeat},
    {"aten::constant_pad_nd.out", 4, constant_pad_nd},
    {"aten::roll.out", 4, roll},
};
const KernelTable table(kEveryLevel, kSelected<kKernels>);

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace edgewise
