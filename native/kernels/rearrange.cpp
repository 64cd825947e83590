// Triangles, diagonals, sliding windows, pixels to channels and back.
#include <algorithm>

#include "cpu_dispatch.h"
#include "kernel_status.h"
#include "rows.h"
#include "view.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

// Zeroes what is above (below) a diagonal of each matrix.
template <bool kLower>
Status triangle(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const int64_t diagonal = context.integer(1);
  Tensor* out = output(context, 2);
  if (!context.ok()) return context.status();
  if (self->rank() < 2) {
    return context.fail(Code::kInvalidArgument, "takes matrices; got %s", self->describe().c_str());
  }
  EDGEWISE_TRY(copy_to(out, view_of(*self)));
  const size_t row_dim = self->rank() - 2;
  const int64_t rows = self->size(row_dim), columns = self->size(row_dim + 1);
  // Beyond the corners a diagonal makes no difference.
  const int64_t offset = std::clamp(diagonal, -rows - 1, columns + 1);
  const Scalar zero{Scalar::Kind::kInt, 0, 0};
  for (int64_t row = 0; row < rows && self->numel() > 0; ++row) {
    const int64_t border = std::clamp<int64_t>(row + offset + (kLower ? 1 : 0), 0, columns);
    View rest = view_of(*out).narrow(row_dim, row, 1);
    rest = kLower ? rest.narrow(row_dim + 1, border, columns - border)
                  : rest.narrow(row_dim + 1, 0, border);
    EDGEWISE_TRY(fill(rest, zero));
  }
  return context.status();
}

Status diagonal_copy(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const int64_t offset = context.integer(1);
  int64_t dim1 = context.integer(2), dim2 = context.integer(3);
  Tensor* out = output(context, 4);
  if (!context.ok()) return context.status();
  View view = view_of(*self);
  EDGEWISE_TRY(check_has_dims(view));
  EDGEWISE_TRY(normalize_dim(dim1, self->rank()));
  EDGEWISE_TRY(normalize_dim(dim2, self->rank()));
  if (dim1 == dim2) {
    return context.fail(Code::kInvalidArgument, "a diagonal is of two dimensions; got %lld twice",
                        static_cast<long long>(dim1));
  }
  const size_t a = static_cast<size_t>(dim1), b = static_cast<size_t>(dim2);
  const int64_t rows = view.sizes[a], columns = view.sizes[b];
  const int64_t at = std::clamp(offset, -rows, columns);
  const int64_t count =
      std::max<int64_t>(at >= 0 ? std::min(rows, columns - at) : std::min(rows + at, columns), 0);
  const int64_t stride = view.strides[a] + view.strides[b];
  if (count > 0) view.move(at >= 0 ? at * view.strides[b] : -at * view.strides[a]);
  for (size_t dim : {std::max(a, b), std::min(a, b)}) {
    view.sizes.erase(dim);
    view.strides.erase(dim);
  }
  view.sizes.push(count);
  view.strides.push(stride);
  return finish(context, copy_to(out, view));
}

Status unfold_copy(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  int64_t dim = context.integer(1);
  const int64_t size = context.integer(2), step = context.integer(3);
  Tensor* out = output(context, 4);
  if (!context.ok()) return context.status();
  View view = with_dims(view_of(*self));
  EDGEWISE_TRY(normalize_dim(dim, self->rank()));
  const size_t along = static_cast<size_t>(dim);
  if (self->rank() >= kMaxDims || size < 0 || step <= 0 || size > view.sizes[along]) {
    return context.fail(
        Code::kInvalidArgument,
        "windows of at most dimension %zu, steps apart; got %s, size %lld, step %lld", along,
        self->describe().c_str(), static_cast<long long>(size), static_cast<long long>(step));
  }
  const int64_t stride = view.strides[along], count = (view.sizes[along] - size) / step + 1;
  view = view.narrow(along, 0, count, step);
  if (self->rank() == 0) view = view.select(0, 0);
  view.sizes.push(size);
  view.strides.push(stride);
  return finish(context, copy_to(out, view));
}

// Splits dimension `dim` of a view in two, the outer one of size `outer`.
void split_dim(View& view, size_t dim, int64_t outer) {
  const int64_t inner = view.sizes[dim] / outer, stride = view.strides[dim];
  view.sizes[dim] = outer;
  view.strides[dim] = stride * inner;
  view.sizes.insert(dim + 1, inner);
  view.strides.insert(dim + 1, stride);
}

void move_dim(View& view, size_t from, size_t to) {
  const int64_t size = view.sizes[from], stride = view.strides[from];
  view.sizes.erase(from);
  view.strides.erase(from);
  view.sizes.insert(to, size);
  view.strides.insert(to, stride);
}

// [..., C r r, H, W] to [..., C, H r, W r], or back if `kUnshuffle`.
template <bool kUnshuffle>
Status pixel_shuffle(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const int64_t r = context.integer(1);
  Tensor* out = output(context, 2);
  if (!context.ok()) return context.status();
  const size_t rank = self->rank();
  bool fits = rank >= 3 && rank + 2 <= kMaxDims && r > 0 && r < (int64_t{1} << 20);
  if (fits) {
    fits = kUnshuffle ? self->size(rank - 2) % r == 0 && self->size(rank - 1) % r == 0
                      : self->size(rank - 3) % (r * r) == 0;
  }
  if (!fits) {
    return context.fail(Code::kInvalidArgument,
                        "takes [..., C, H, W] that the factor divides; got %s, factor %lld",
                        self->describe().c_str(), static_cast<long long>(r));
  }
  const size_t c = rank - 3;
  std::vector<int64_t> wanted(self->sizes().begin(), self->sizes().end());
  bool overflow = false;
  if (kUnshuffle) {
    overflow = __builtin_mul_overflow(wanted[c], r * r, &wanted[c]);
    wanted[c + 1] /= r;
    wanted[c + 2] /= r;
  } else {
    wanted[c] /= r * r;
    overflow = __builtin_mul_overflow(wanted[c + 1], r, &wanted[c + 1]) ||
               __builtin_mul_overflow(wanted[c + 2], r, &wanted[c + 2]);
  }
  if (overflow) wanted[c] = -1;
  Dims sizes;
  EDGEWISE_TRY(to_sizes(wanted, sizes));
  EDGEWISE_TRY(out->resize(sizes));
  if (self->numel() == 0) return context.status();
  // Both sides as [..., C, r, r, H, W].
  View small = kUnshuffle ? view_of(*out) : view_of(*self);
  View large = kUnshuffle ? view_of(*self) : view_of(*out);
  split_dim(small, c, small.sizes[c] / r);
  split_dim(small, c, small.sizes[c] / r);
  split_dim(large, c + 2, large.sizes[c + 2] / r);
  split_dim(large, c + 1, large.sizes[c + 1] / r);
  move_dim(large, c + 2, c + 1);
  move_dim(large, c + 4, c + 2);
  return finish(context, kUnshuffle ? assign(small, large) : assign(large, small));
}

constexpr KernelEntry kKernels[] = {
    {"aten::tril.out", 3, triangle<true>},
    {"aten::triu.out", 3, triangle<false>},
    {"aten::diagonal_copy.out", 5, diagonal_copy},
    {"aten::unfold_copy.out", 5, unfold_copy},
    {"aten::pixel_shuffle.out", 3, pixel_shuffle<false>},
    {"aten::pixel_unshuffle.out", 3, pixel_shuffle<true>},
};
const KernelTable table(kEveryLevel, kSelected<kKernels>);

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace edgewise
