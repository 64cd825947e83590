// New tensors: full, zeros, ones, arange, empty, fill, scalar_tensor.
#include <cmath>
#include <string>

#include "cpu_dispatch.h"
#include "kernel_status.h"
#include "view.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

Scalar integer_scalar(int64_t value) { return {Scalar::Kind::kInt, value, 0}; }

Status make(KernelContext& context, size_t size_index, Tensor* out) {
  Dims sizes;
  EDGEWISE_TRY(to_sizes(context.int_list(size_index), sizes));
  if (!context.ok()) return context.status();
  return finish(context, out->resize(sizes));
}

Status full(KernelContext& context) {
  const Scalar value = context.scalar(1);
  Tensor* out = output(context, 2);
  if (!context.ok()) return context.status();
  EDGEWISE_RETURN_IF_ERROR(make(context, 0, out));
  return finish(context, fill(view_of(*out), value));
}

template <int kValue, size_t kOut>
Status constant(KernelContext& context) {
  Tensor* out = output(context, kOut);
  if (!context.ok()) return context.status();
  EDGEWISE_RETURN_IF_ERROR(make(context, 0, out));
  return finish(context, fill(view_of(*out), integer_scalar(kValue)));
}

Status like(KernelContext& context, const Scalar& value, size_t out_index) {
  const Tensor* self = context.tensor(0);
  Tensor* out = output(context, out_index);
  if (!context.ok()) return context.status();
  EDGEWISE_TRY(out->resize(self->sizes()));
  return finish(context, fill(view_of(*out), value));
}

template <int kValue>
Status constant_like(KernelContext& context) {
  return like(context, integer_scalar(kValue), 2);
}

template <size_t kOut>
Status fill_like(KernelContext& context) {
  return like(context, context.scalar(1), kOut);
}

Status fill_tensor(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const Tensor* value = context.tensor(1);
  Tensor* out = output(context, 2);
  if (!context.ok()) return context.status();
  if (value->rank() != 0) {
    return context.fail(Code::kInvalidArgument, "the value has no dimensions; got %s",
                        value->describe().c_str());
  }
  return finish(context, copy_to(out, view_of(*value).expand(Dims(self->sizes()))));
}

Status scalar_tensor(KernelContext& context) {
  const Scalar value = context.scalar(0);
  Tensor* out = output(context, 1);
  if (!context.ok()) return context.status();
  EDGEWISE_TRY(out->resize({}));
  return finish(context, fill(view_of(*out), value));
}

// Contents are left as they are.
Status empty(KernelContext& context) {
  Tensor* out = output(context, 2);
  if (!context.ok()) return context.status();
  return make(context, 0, out);
}

Status arange_between(KernelContext& context, const Scalar& start, const Scalar& end,
                      const Scalar& step, Tensor* out) {
  if (!context.ok()) return context.status();
  if (!is_computable(out->type())) {
    return context.fail(Code::kUnsupported, "makes numbers; got an output of %s",
                        out->describe().c_str());
  }
  const double first = scalar_to<double>(start), last = scalar_to<double>(end);
  const double by = scalar_to<double>(step);
  const bool integral = start.kind != Scalar::Kind::kDouble && end.kind != Scalar::Kind::kDouble &&
                        step.kind != Scalar::Kind::kDouble;
  double count = std::ceil((last - first) / by);
  if (integral && step.i != 0) {
    // Without a sign, since the distance of two 64-bit numbers may need all bits.
    const bool up = step.i > 0;
    const int64_t low = up ? start.i : end.i, high = up ? end.i : start.i;
    const uint64_t span = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
    const uint64_t stride = up ? static_cast<uint64_t>(step.i) : 0 - static_cast<uint64_t>(step.i);
    count = high < low ? -1 : static_cast<double>(span / stride + (span % stride != 0));
  }
  if (by == 0 || !(count >= 0 && count < 0x1p58)) {
    return context.fail(Code::kInvalidArgument,
                        "steps other than 0 lead from start to end; got start %g, end %g, step %g",
                        first, last, by);
  }
  const int64_t numel = static_cast<int64_t>(count);
  EDGEWISE_TRY(out->resize(std::array{numel}));
  const View target = view_of(*out);
  const auto write = [&](auto c) {
    using C = decltype(c);
    const C begin = scalar_to<C>(start), stride = scalar_to<C>(step);
    constexpr int64_t kBlock = 256;
    for (int64_t done = 0; done < numel; done += kBlock) {
      C values[kBlock];
      const int64_t n = std::min(kBlock, numel - done);
      for (int64_t i = 0; i < n; ++i) {
        values[i] = wrap_add(begin, wrap_mul(static_cast<C>(done + i), stride));
      }
      store<C>(target.type, values, n, target.at(done), 1);
    }
  };
  if (is_floating(out->type())) {
    write(double{});
  } else {
    write(int64_t{});
  }
  return context.status();
}

Status arange(KernelContext& context) {
  const Scalar end = context.scalar(0);
  return arange_between(context, integer_scalar(0), end, integer_scalar(1), output(context, 1));
}

Status arange_start(KernelContext& context) {
  const Scalar start = context.scalar(0), end = context.scalar(1), step = context.scalar(2);
  return arange_between(context, start, end, step, output(context, 3));
}

constexpr KernelEntry kKernels[] = {
    {"aten::full.out", 3, full},
    {"aten::full_like.out", 4, fill_like<3>},
    {"aten::fill.Scalar_out", 3, fill_like<2>},
    {"aten::fill.Tensor_out", 3, fill_tensor},
    {"aten::zeros.out", 2, constant<0, 1>},
    {"aten::ones.out", 2, constant<1, 1>},
    {"aten::zeros_like.out", 3, constant_like<0>},
    {"aten::ones_like.out", 3, constant_like<1>},
    {"aten::scalar_tensor.out", 2, scalar_tensor},
    {"aten::empty.out", 3, empty},
    {"aten::empty_permuted.out", 3, empty},
    {"aten::empty_strided.out", 3, empty},
    {"dim_order_ops::_empty_dim_order.out", 3, empty},
    {"aten::arange.out", 2, arange},
    {"aten::arange.start_out", 4, arange_start},
};
const KernelTable table(kEveryLevel, kSelected<kKernels>);

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace edgewise
