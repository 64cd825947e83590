// Layer and group normalization.
#include <cmath>

#include "array_reductions.h"
#include "compute_tensor.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

struct Moments {
  double mean, inverse_deviation;
};

// Of `n` elements; two passes, sums in double.
template <typename C>
Moments moments(const C* x, int64_t n, double eps) {
  const double mean = sum_of(x, n) / static_cast<double>(n);
  const double squares = squared_deviations(x, n, mean);
  return {mean, 1.0 / std::sqrt(squares / static_cast<double>(n) + eps)};
}

// Weights or biases of `count` elements, if there are.
template <typename C>
Status read_optional(const Tensor* tensor, int64_t count, ComputeInput<C>& input) {
  if (!tensor) return {};
  if (tensor->numel() != count || !is_computable(tensor->type())) {
    return error(Code::kInvalidArgument, "weight and bias have %lld elements; got %s",
                 static_cast<long long>(count), tensor->describe().c_str());
  }
  return input.read(view_of(*tensor), true);
}

template <typename C>
void store_one(Tensor* tensor, const View& view, int64_t index, double value) {
  if (index >= tensor->numel()) return;
  if (view.type == kTypeOf<C>) {
    reinterpret_cast<C*>(view.data)[index] = static_cast<C>(value);
  } else {
    store<double>(view.type, &value, 1, view.at(index), 1);
  }
}

Status layer_norm(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const std::vector<int64_t> shape = context.int_list(1);
  const Tensor* weight = context.optional_tensor(2);
  const Tensor* bias = context.optional_tensor(3);
  const double eps = context.number(4);
  Tensor* out = output(context, 5);
  Tensor* mean_out = output(context, 6);
  Tensor* deviation_out = output(context, 7);
  if (!context.ok()) return context.status();
  for (const Tensor* tensor :
       {self, const_cast<const Tensor*>(out), const_cast<const Tensor*>(mean_out),
        const_cast<const Tensor*>(deviation_out)}) {
    EDGEWISE_RETURN_IF_ERROR(check_floating(context, tensor));
  }
  Dims statistics;
  int64_t rows = 1, n = 1;
  bool fits = shape.size() >= 1 && shape.size() <= self->rank();
  for (size_t dim = 0; fits && dim < self->rank(); ++dim) {
    const size_t outer = self->rank() - shape.size();
    fits = dim < outer || shape[dim - outer] == self->size(dim);
    (dim < outer ? rows : n) *= self->size(dim);
    statistics.push(dim < outer ? self->size(dim) : 1);
  }
  if (!fits) {
    return context.fail(Code::kInvalidArgument, "normalized_shape ends the shape of %s; got %s",
                        self->describe().c_str(), describe(shape).c_str());
  }
  EDGEWISE_TRY(out->resize(self->sizes()));
  EDGEWISE_TRY(mean_out->resize(statistics));
  EDGEWISE_TRY(deviation_out->resize(statistics));
  if (rows == 0) return context.status();
  return with_floating_type(self->type(), [&](auto c) -> Status {
    using C = decltype(c);
    ComputeInput<C> x, w, b;
    ComputeOutput<C> y;
    EDGEWISE_TRY(x.read(view_of(*self), true));
    EDGEWISE_TRY(read_optional(weight, n, w));
    EDGEWISE_TRY(read_optional(bias, n, b));
    EDGEWISE_TRY(y.prepare(view_of(*out), true));
    const View mean_view = view_of(*mean_out), deviation_view = view_of(*deviation_out);
    for (int64_t row = 0; row < rows; ++row) {
      const C* in = x.data + row * n;
      C* result = y.data + row * n;
      const Moments m = moments(in, n, eps);
      const C mean = static_cast<C>(m.mean), scale = static_cast<C>(m.inverse_deviation);
      for (int64_t i = 0; i < n; ++i) result[i] = (in[i] - mean) * scale;
      if (w.data)
        for (int64_t i = 0; i < n; ++i) result[i] *= w.data[i];
      if (b.data)
        for (int64_t i = 0; i < n; ++i) result[i] += b.data[i];
      store_one<C>(mean_out, mean_view, row, m.mean);
      store_one<C>(deviation_out, deviation_view, row, m.inverse_deviation);
    }
    return finish(context, y.finish());
  });
}

// x [N, C, ...] seen as [n, group, channels of the group, spatial].
Status group_norm(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const Tensor* weight = context.optional_tensor(1);
  const Tensor* bias = context.optional_tensor(2);
  const int64_t n = context.integer(3), channels = context.integer(4), spatial = context.integer(5);
  const int64_t groups = context.integer(6);
  const double eps = context.number(7);
  Tensor* out = output(context, 8);
  Tensor* mean_out = output(context, 9);
  Tensor* deviation_out = output(context, 10);
  if (!context.ok()) return context.status();
  for (const Tensor* tensor :
       {self, const_cast<const Tensor*>(out), const_cast<const Tensor*>(mean_out),
        const_cast<const Tensor*>(deviation_out)}) {
    EDGEWISE_RETURN_IF_ERROR(check_floating(context, tensor));
  }
  bool fits = self->rank() >= 2 && self->size(0) == n && self->size(1) == channels && groups > 0 &&
              channels % groups == 0;
  int64_t product = 1;
  for (size_t dim = 2; fits && dim < self->rank(); ++dim) {
    fits = !__builtin_mul_overflow(product, self->size(dim), &product);
  }
  if (!fits || product != spatial) {
    return context.fail(
        Code::kInvalidArgument,
        "takes [N, C, ...] with C a multiple of the groups; got %s, N %lld, C %lld, "
        "HxW %lld, %lld groups",
        self->describe().c_str(), static_cast<long long>(n), static_cast<long long>(channels),
        static_cast<long long>(spatial), static_cast<long long>(groups));
  }
  EDGEWISE_TRY(out->resize(self->sizes()));
  EDGEWISE_TRY(mean_out->resize(std::array{n, groups}));
  EDGEWISE_TRY(deviation_out->resize(std::array{n, groups}));
  return with_floating_type(self->type(), [&](auto c) -> Status {
    using C = decltype(c);
    ComputeInput<C> x, w, b;
    ComputeOutput<C> y;
    EDGEWISE_TRY(x.read(view_of(*self), true));
    EDGEWISE_TRY(read_optional(weight, channels, w));
    EDGEWISE_TRY(read_optional(bias, channels, b));
    EDGEWISE_TRY(y.prepare(view_of(*out), true));
    const View mean_view = view_of(*mean_out), deviation_view = view_of(*deviation_out);
    const int64_t group_channels = channels / groups;
    for (int64_t g = 0; g < n * groups; ++g) {
      const int64_t begin = g * group_channels * spatial;
      const Moments m = moments(x.data + begin, group_channels * spatial, eps);
      for (int64_t k = 0; k < group_channels; ++k) {
        const int64_t channel = g % groups * group_channels + k;
        const C scale = static_cast<C>(m.inverse_deviation) * (w.data ? w.data[channel] : C(1));
        const C shift = (b.data ? b.data[channel] : C(0)) - scale * static_cast<C>(m.mean);
        const C* in = x.data + begin + k * spatial;
        C* result = y.data + begin + k * spatial;
        for (int64_t i = 0; i < spatial; ++i) result[i] = in[i] * scale + shift;
      }
      store_one<C>(mean_out, mean_view, g, m.mean);
      store_one<C>(deviation_out, deviation_view, g, m.inverse_deviation);
    }
    return finish(context, y.finish());
  });
}

constexpr KernelEntry kKernels[] = {
    {"aten::native_layer_norm.out", 8, layer_norm},
    {"aten::native_group_norm.out", 11, group_norm},
};
const KernelTable table(HWY_TARGET, kSelected<kKernels>);

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace edgewise
