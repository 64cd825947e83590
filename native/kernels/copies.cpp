// Operators that move elements: a strided view of the input, copied to the output.
#include <string>
#include <utility>

#include "cpu_dispatch.h"
#include "kernel_status.h"
#include "view.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

template <size_t kOut>
Status clone(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  Tensor* out = output(context, kOut);
  if (!context.ok()) return context.status();
  return finish(context, copy_to(out, view_of(*self)));
}

// copy.out and copy_: `source` broadcast to self's shape, in the output's type.
template <size_t kOut>
Status copy(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const Tensor* source = context.tensor(1);
  Tensor* out = output(context, kOut);
  if (!context.ok()) return context.status();
  Dims sizes(self->sizes());
  EDGEWISE_TRY(broadcast(source->sizes(), sizes));
  if (!(sizes == Dims(self->sizes()))) {
    return context.fail(Code::kInvalidArgument, "the source must broadcast to %s; got %s",
                        self->describe().c_str(), source->describe().c_str());
  }
  return finish(context, copy_to(out, view_of(*source).expand(sizes)));
}

Status view_copy(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  std::vector<int64_t> wanted = context.int_list(1);
  Tensor* out = output(context, 2);
  if (!context.ok()) return context.status();
  int64_t known = 1;
  int64_t* inferred = nullptr;
  for (int64_t& size : wanted) {
    if (size == -1 && !inferred) {
      inferred = &size;
    } else if (size < 0 || __builtin_mul_overflow(known, size, &known)) {
      return context.fail(Code::kInvalidArgument,
                          "sizes are not negative, except one that may be -1; got %s",
                          describe(wanted).c_str());
    }
  }
  if (inferred) *inferred = known > 0 && self->numel() % known == 0 ? self->numel() / known : 0;
  Dims sizes;
  EDGEWISE_TRY(to_sizes(wanted, sizes));
  if (sizes.product() != self->numel()) {
    return context.fail(Code::kInvalidArgument,
                        "a view keeps the number of elements; got %s for %s",
                        describe(wanted).c_str(), self->describe().c_str());
  }
  EDGEWISE_TRY(out->resize(sizes));
  return finish(context, assign_linear(view_of(*out), view_of(*self)));
}

Status permute_copy(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const std::vector<int64_t> dims = context.int_list(1);
  Tensor* out = output(context, 2);
  if (!context.ok()) return context.status();
  const View source = view_of(*self);
  View view = source;
  uint32_t seen = 0;
  bool valid = dims.size() == self->rank();
  for (size_t i = 0; valid && i < dims.size(); ++i) {
    int64_t dim = dims[i];
    EDGEWISE_TRY(normalize_dim(dim, self->rank()));
    const size_t from = static_cast<size_t>(dim);
    valid = !(seen & (1u << from));
    seen |= 1u << from;
    view.sizes[i] = source.sizes[from];
    view.strides[i] = source.strides[from];
  }
  if (!valid) {
    return context.fail(Code::kInvalidArgument, "dims names each dimension of %s once; got %s",
                        self->describe().c_str(), describe(dims).c_str());
  }
  return finish(context, copy_to(out, view));
}

Status transpose(KernelContext& context, const Tensor* self, int64_t a, int64_t b, Tensor* out) {
  View view = view_of(*self);
  if (self->rank() > 0) {
    EDGEWISE_TRY(normalize_dim(a, self->rank()));
    EDGEWISE_TRY(normalize_dim(b, self->rank()));
    std::swap(view.sizes[static_cast<size_t>(a)], view.sizes[static_cast<size_t>(b)]);
    std::swap(view.strides[static_cast<size_t>(a)], view.strides[static_cast<size_t>(b)]);
  }
  return finish(context, copy_to(out, view));
}

Status transpose_copy(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const int64_t a = context.integer(1), b = context.integer(2);
  Tensor* out = output(context, 3);
  if (!context.ok()) return context.status();
  return transpose(context, self, a, b, out);
}

Status t_copy(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  Tensor* out = output(context, 1);
  if (!context.ok()) return context.status();
  if (self->rank() > 2) {
    return context.fail(Code::kInvalidArgument, "takes at most 2 dimensions; got %s",
                        self->describe().c_str());
  }
  return self->rank() < 2 ? finish(context, copy_to(out, view_of(*self)))
                          : transpose(context, self, 0, 1, out);
}

Status unsqueeze_copy(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  int64_t dim = context.integer(1);
  Tensor* out = output(context, 2);
  if (!context.ok()) return context.status();
  if (self->rank() >= kMaxDims) {
    return context.fail(Code::kUnsupported, "a tensor has at most %zu dimensions; got one more",
                        kMaxDims);
  }
  EDGEWISE_TRY(normalize_dim(dim, self->rank() + 1));
  View view = view_of(*self);
  view.sizes.insert(static_cast<size_t>(dim), 1);
  view.strides.insert(static_cast<size_t>(dim), 0);
  return finish(context, copy_to(out, view));
}

Status squeeze_copy(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const std::vector<int64_t> dims = context.int_list(1);
  Tensor* out = output(context, 2);
  if (!context.ok()) return context.status();
  uint32_t named = 0;
  for (int64_t dim : dims) {
    EDGEWISE_TRY(normalize_dim(dim, self->rank()));
    named |= 1u << dim;
  }
  View view = view_of(*self);
  for (size_t dim = self->rank(); dim-- > 0;) {
    if ((named & (1u << dim)) && view.sizes[dim] == 1) {
      view.sizes.erase(dim);
      view.strides.erase(dim);
    }
  }
  return finish(context, copy_to(out, view));
}

Status expand_copy(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  std::vector<int64_t> wanted = context.int_list(1);
  Tensor* out = output(context, 3);
  if (!context.ok()) return context.status();
  bool valid = wanted.size() >= self->rank();
  const size_t added = valid ? wanted.size() - self->rank() : 0;
  for (size_t dim = added; valid && dim < wanted.size(); ++dim) {
    const int64_t size = self->size(dim - added);
    if (wanted[dim] == -1) wanted[dim] = size;
    valid = size == 1 || size == wanted[dim];
  }
  if (!valid) {
    return context.fail(Code::kInvalidArgument, "sizes other than 1 stay; got %s for %s",
                        describe(wanted).c_str(), self->describe().c_str());
  }
  Dims sizes;
  EDGEWISE_TRY(to_sizes(wanted, sizes));
  return finish(context, copy_to(out, view_of(*self).expand(sizes)));
}

Status slice_copy(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  int64_t dim = context.integer(1);
  const std::optional<int64_t> start = context.optional_integer(2),
                               end = context.optional_integer(3);
  const int64_t step = context.integer(4);
  Tensor* out = output(context, 5);
  if (!context.ok()) return context.status();
  View view = view_of(*self);
  EDGEWISE_TRY(slice(view, dim, start, end, step));
  return finish(context, copy_to(out, view));
}

Status narrow_copy(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  int64_t dim = context.integer(1), start = context.integer(2);
  const int64_t length = context.integer(3);
  Tensor* out = output(context, 4);
  if (!context.ok()) return context.status();
  View view = view_of(*self);
  EDGEWISE_TRY(check_has_dims(view));
  EDGEWISE_TRY(normalize_dim(dim, self->rank()));
  const int64_t size = self->size(static_cast<size_t>(dim));
  if (start < 0 && start >= -size) start += size;
  if (start < 0 || length < 0 || start > size || length > size - start) {
    return context.fail(Code::kInvalidArgument, "a range lies within [0, %lld); got %lld from %lld",
                        static_cast<long long>(size), static_cast<long long>(length),
                        static_cast<long long>(start));
  }
  return finish(context, copy_to(out, view.narrow(static_cast<size_t>(dim), start, length)));
}

Status select_copy(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  int64_t dim = context.integer(1), index = context.integer(2);
  Tensor* out = output(context, 3);
  if (!context.ok()) return context.status();
  View view = view_of(*self);
  EDGEWISE_TRY(select(view, dim, index));
  return finish(context, copy_to(out, view));
}

Status flip(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const std::vector<int64_t> dims = context.int_list(1);
  Tensor* out = output(context, 2);
  if (!context.ok()) return context.status();
  View view = view_of(*self);
  uint32_t flipped = 0;
  for (int64_t value : dims) {
    EDGEWISE_TRY(normalize_dim(value, self->rank()));
    if (self->rank() == 0) continue;
    const size_t dim = static_cast<size_t>(value);
    if (flipped & (1u << dim)) {
      return context.fail(Code::kInvalidArgument, "dims names a dimension once; got %s",
                          describe(dims).c_str());
    }
    flipped |= 1u << dim;
    if (self->numel() > 0) view.move((view.sizes[dim] - 1) * view.strides[dim]);
    view.strides[dim] = -view.strides[dim];
  }
  return finish(context, copy_to(out, view));
}

// Checks that every element of the view lies within the tensor's memory.
Status as_strided_copy(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const std::vector<int64_t> wanted = context.int_list(1), strides = context.int_list(2);
  const std::optional<int64_t> offset = context.optional_integer(3);
  Tensor* out = output(context, 4);
  if (!context.ok()) return context.status();
  View view = view_of(*self);
  EDGEWISE_TRY(to_sizes(wanted, view.sizes));
  bool valid = strides.size() == wanted.size() && offset.value_or(0) >= 0;
  int64_t last = offset.value_or(0);
  for (size_t dim = 0; valid && dim < wanted.size(); ++dim) {
    int64_t reach = 0;
    valid = strides[dim] >= 0 &&
            (wanted[dim] == 0 || (!__builtin_mul_overflow(wanted[dim] - 1, strides[dim], &reach) &&
                                  !__builtin_add_overflow(last, reach, &last)));
  }
  if (!valid || (view.numel() > 0 && last >= self->numel())) {
    return context.fail(Code::kInvalidArgument,
                        "a strided view stays within its tensor's %lld elements; got sizes %s, "
                        "strides %s, offset %lld",
                        static_cast<long long>(self->numel()), describe(wanted).c_str(),
                        describe(strides).c_str(), static_cast<long long>(offset.value_or(0)));
  }
  view.strides = Dims(strides);
  if (view.numel() > 0) view.move(offset.value_or(0));
  return finish(context, copy_to(out, view));
}

constexpr KernelEntry kKernels[] = {
    {"aten::clone.out", 3, clone<2>},
    {"aten::alias_copy.out", 2, clone<1>},
    {"aten::detach_copy.out", 2, clone<1>},
    {"aten::lift_fresh_copy.out", 2, clone<1>},
    {"aten::_to_copy.out", 4, clone<3>},
    {"dim_order_ops::_to_dim_order_copy.out", 4, clone<3>},
    {"dim_order_ops::_clone_dim_order.out", 4, clone<3>},
    {"aten::copy.out", 4, copy<3>},
    {"aten::copy_", 3, copy<0>},
    {"aten::view_copy.out", 3, view_copy},
    {"executorch_prim::et_view.default", 3, view_copy},
    {"aten::permute_copy.out", 3, permute_copy},
    {"aten::transpose_copy.int_out", 4, transpose_copy},
    {"aten::t_copy.out", 2, t_copy},
    {"aten::unsqueeze_copy.out", 3, unsqueeze_copy},
    {"aten::squeeze_copy.dim_out", 3, squeeze_copy},
    {"aten::squeeze_copy.dims_out", 3, squeeze_copy},
    {"aten::expand_copy.out", 4, expand_copy},
    {"aten::slice_copy.Tensor_out", 6, slice_copy},
    {"aten::narrow_copy.out", 5, narrow_copy},
    {"aten::select_copy.int_out", 4, select_copy},
    {"aten::flip.out", 3, flip},
    {"aten::as_strided_copy.out", 5, as_strided_copy},
};
const KernelTable table(kEveryLevel, kSelected<kKernels>);

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace edgewise
