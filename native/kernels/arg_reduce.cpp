// Where the extremes are: argmax, argmin, and max and min along a dimension.
#include "array_reductions.h"
#include "compute_tensor.h"
#include "rows.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

// The first of the largest (smallest) elements; NaN is more than anything.
template <typename C>
int64_t find_extreme(const C* row, int64_t n, bool largest) {
  const C best = largest ? extreme_of<true>(row, n) : extreme_of<false>(row, n);
  constexpr int64_t kStep = 64;
  int64_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    int32_t found = 0;
    for (int64_t j = 0; j < kStep; ++j) {
      found |= row[i + j] == best || row[i + j] != row[i + j] ? 1 : 0;
    }
    if (found) break;
  }
  while (i < n - 1 && row[i] != best && row[i] == row[i]) ++i;
  return i;
}

// Of few elements, `step` apart.
template <typename C>
int64_t find_extreme_of_few(const C* x, int64_t step, int64_t n, bool largest) {
  int64_t best = 0;
  for (int64_t i = 0; i < n; ++i) {
    const C value = x[i * step];
    if (value != value) return i;
    if (largest ? value > x[best * step] : value < x[best * step]) best = i;
  }
  return best;
}

// Shape of a result without, or with one element of, dimension `dim`.
Status resize_reduced(const Tensor& self, size_t dim, bool keepdim, Tensor* out, View& view) {
  Dims sizes(self.sizes());
  if (self.rank() > 0) sizes[dim] = 1;
  if (!keepdim && self.rank() > 0) sizes.erase(dim);
  EDGEWISE_RETURN_IF_ERROR(out->resize(sizes));
  view = view_of(*out);
  if (!keepdim || self.rank() == 0) {
    view.sizes.insert(dim, 1);
    view.strides.insert(dim, 0);
  }
  return {};
}

Status check(KernelContext& context, const Tensor* self, const Tensor* indices, bool has_elements) {
  if (!is_computable(self->type()) || indices->type() != ScalarType::kLong) {
    return context.fail(Code::kInvalidArgument, "gives int64 indices for numbers; got %s to %s",
                        self->describe().c_str(), indices->describe().c_str());
  }
  if (has_elements) return {};
  return context.fail(Code::kInvalidArgument, "no elements have no extreme; got %s",
                      self->describe().c_str());
}

// Where the extreme of each row is, and if asked for the extreme.
template <typename C>
Status find_rows(const View& source, size_t along, bool largest, const View& indices,
                 const View* values) {
  const int64_t n = source.sizes[along], step = source.strides[along];
  const bool is_few = n <= 2 * kFewElements;
  if (is_few && source.type != kTypeOf<C>) {
    ComputeInput<C> read;
    EDGEWISE_RETURN_IF_ERROR(read.read(source));
    return find_rows<C>(read.view(), along, largest, indices, values);
  }
  const bool direct = is_few || (source.type == kTypeOf<C> && step == 1);
  Scratch<C> row;
  EDGEWISE_RETURN_IF_ERROR(row.reserve(direct ? 0 : n));
  for_rows<3>({indices, source, values ? *values : indices}, along, [&](const auto& firsts) {
    const C* x = reinterpret_cast<const C*>(firsts[1]);
    if (!direct) {
      load<C>(source.type, firsts[1], step, n, row.data());
      x = row.data();
    }
    const int64_t best =
        is_few ? find_extreme_of_few(x, step, n, largest) : find_extreme(x, n, largest);
    if (values) store<C>(values->type, x + (is_few ? best * step : best), 1, firsts[2], 1);
    *reinterpret_cast<int64_t*>(firsts[0]) = best;
  });
  return {};
}

Status find(KernelContext& context, const View& source, size_t along, bool largest,
            const View& indices, const View* values) {
  return with_short_compute_type(source.type, [&](auto c) {
    return finish(context, find_rows<decltype(c)>(source, along, largest, indices, values));
  });
}

// Of all elements, in row-major order.
Status find_in_all(KernelContext& context, const Tensor* self, bool largest, bool keepdim,
                   Tensor* out) {
  EDGEWISE_RETURN_IF_ERROR(check(context, self, out, self->numel() > 0));
  Dims sizes;
  for (size_t dim = 0; keepdim && dim < self->rank(); ++dim) sizes.push(1);
  EDGEWISE_TRY(out->resize(sizes));
  View line = view_of(*self);
  Scratch<std::byte> copy;
  if (!line.is_row_major()) {
    EDGEWISE_TRY(copy.reserve(static_cast<int64_t>(self->nbytes())));
    const View target{copy.data(), line.type, line.sizes, contiguous_strides(line.sizes)};
    EDGEWISE_TRY(assign(target, line));
    line = target;
  }
  line.sizes = Dims(std::array{self->numel()});
  line.strides = Dims(std::array{int64_t{1}});
  View index = view_of(*out);
  index.sizes = index.strides = Dims(std::array{int64_t{1}});
  return find(context, line, 0, largest, index, nullptr);
}

template <bool kLargest>
Status arg_extreme(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const std::optional<int64_t> wanted = context.optional_integer(1);
  const bool keepdim = context.boolean(2);
  Tensor* out = output(context, 3);
  if (!context.ok()) return context.status();
  if (!wanted) return find_in_all(context, self, kLargest, keepdim, out);
  int64_t dim = *wanted;
  EDGEWISE_TRY(normalize_dim(dim, self->rank()));
  const size_t along = static_cast<size_t>(dim);
  const View source = with_dims(view_of(*self));
  View target;
  EDGEWISE_TRY(resize_reduced(*self, along, keepdim, out, target));
  EDGEWISE_RETURN_IF_ERROR(check(context, self, out, source.sizes[along] > 0));
  if (self->numel() == 0) return context.status();
  return find(context, source, along, kLargest, target, nullptr);
}

template <bool kLargest>
Status extreme_along(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  int64_t dim = context.integer(1);
  const bool keepdim = context.boolean(2);
  Tensor* values = output(context, 3);
  Tensor* indices = output(context, 4);
  if (!context.ok()) return context.status();
  EDGEWISE_TRY(normalize_dim(dim, self->rank()));
  const size_t along = static_cast<size_t>(dim);
  const View source = with_dims(view_of(*self));
  if (!can_store(self->type(), values->type())) {
    return context.fail(Code::kInvalidArgument, "values have the input's type; got %s to %s",
                        self->describe().c_str(), values->describe().c_str());
  }
  View value_view, index_view;
  EDGEWISE_TRY(resize_reduced(*self, along, keepdim, values, value_view));
  EDGEWISE_TRY(resize_reduced(*self, along, keepdim, indices, index_view));
  EDGEWISE_RETURN_IF_ERROR(check(context, self, indices, source.sizes[along] > 0));
  if (self->numel() == 0) return context.status();
  return find(context, source, along, kLargest, index_view, &value_view);
}

constexpr KernelEntry kKernels[] = {
    {"aten::argmax.out", 4, arg_extreme<true>},
    {"aten::argmin.out", 4, arg_extreme<false>},
    {"aten::max.dim_max", 5, extreme_along<true>},
    {"aten::min.dim_min", 5, extreme_along<false>},
};
const KernelTable table(HWY_TARGET, kSelected<kKernels>);

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace edgewise
