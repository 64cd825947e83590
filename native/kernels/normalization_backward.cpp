// Gradients of layer and group normalization. An output that the mask leaves out is None.
#include <cmath>

#include "compute_tensor.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

// Rows of `n` elements are normalized. In groups, element k of row r has the weight
// `channel(r, k)`, else that of its position.
struct Rows {
  int64_t count, n, channels;
  int64_t groups = 0;
  int64_t spatial = 1;

  int64_t channel(int64_t row, int64_t k) const {
    return row % groups * (channels / groups) + k / spatial;
  }
};

Tensor* optional_output(KernelContext& context, size_t index) {
  const Value* value = context.value(index);
  return !value || value->is_none() ? nullptr : output(context, index);
}

Status prepare(KernelContext& context, const Tensor* gradient, const Tensor* self,
               const Tensor* mean, const Tensor* deviation, const Tensor* weight, const Rows& rows,
               const Dims& parameters, std::array<Tensor*, 3> outs) {
  bool fits = is_floating(self->type()) && Dims(gradient->sizes()) == Dims(self->sizes()) &&
              is_floating(gradient->type()) && is_floating(mean->type()) &&
              is_floating(deviation->type()) && mean->numel() == rows.count &&
              deviation->numel() == rows.count &&
              (!weight || (weight->numel() == rows.channels && is_floating(weight->type())));
  for (const Tensor* out : outs) fits = fits && (!out || is_floating(out->type()));
  if (!fits) {
    return context.fail(Code::kInvalidArgument,
                        "takes the gradient of the output for %s with its statistics; got %s",
                        self->describe().c_str(), gradient->describe().c_str());
  }
  for (size_t i = 0; i < 3; ++i) {
    if (outs[i]) EDGEWISE_TRY(outs[i]->resize(i == 0 ? Dims(self->sizes()) : parameters));
  }
  return context.status();
}

Status backward_of_rows(KernelContext& context, const Tensor* gradient, const Tensor* self,
                        const Tensor* mean, const Tensor* deviation, const Tensor* weight,
                        const Rows& rows, std::array<Tensor*, 3> outs) {
  ComputeInput<double> x, g, means, deviations, w;
  ComputeOutput<double> results[3];
  EDGEWISE_TRY(x.read(view_of(*self), true));
  EDGEWISE_TRY(g.read(view_of(*gradient), true));
  EDGEWISE_TRY(means.read(view_of(*mean), true));
  EDGEWISE_TRY(deviations.read(view_of(*deviation), true));
  if (weight) EDGEWISE_TRY(w.read(view_of(*weight), true));
  for (size_t i = 0; i < 3; ++i) {
    if (!outs[i]) continue;
    EDGEWISE_TRY(results[i].prepare(view_of(*outs[i]), true));
    std::fill_n(results[i].data, outs[i]->numel(), 0.0);
  }
  for (int64_t row = 0; row < rows.count; ++row) {
    const double* from = x.data + row * rows.n;
    const double* slope = g.data + row * rows.n;
    const double scale = deviations.data[row];
    double sum = 0, product = 0;
    for (int64_t k = 0; k < rows.n; ++k) {
      const double normal = (from[k] - means.data[row]) * scale;
      const double weighted = slope[k] * (weight ? w.data[k] : 1);
      sum += weighted;
      product += weighted * normal;
      if (outs[1]) results[1].data[k] += slope[k] * normal;
      if (outs[2]) results[2].data[k] += slope[k];
    }
    const double n = static_cast<double>(rows.n);
    for (int64_t k = 0; outs[0] && k < rows.n; ++k) {
      const double normal = (from[k] - means.data[row]) * scale;
      const double weighted = slope[k] * (weight ? w.data[k] : 1);
      results[0].data[row * rows.n + k] = scale * (weighted - (sum + normal * product) / n);
    }
  }
  for (size_t i = 0; i < 3; ++i) {
    if (outs[i]) EDGEWISE_TRY(results[i].finish());
  }
  return context.status();
}

Status layer_norm_backward(KernelContext& context) {
  const Tensor* gradient = context.tensor(0);
  const Tensor* self = context.tensor(1);
  const std::vector<int64_t> shape = context.int_list(2);
  const Tensor* mean = context.tensor(3);
  const Tensor* deviation = context.tensor(4);
  const Tensor* weight = context.optional_tensor(5);
  const std::array<Tensor*, 3> outs{optional_output(context, 8), optional_output(context, 9),
                                    optional_output(context, 10)};
  if (!context.ok()) return context.status();
  Rows rows{1, 1, 1};
  bool fits = !shape.empty() && shape.size() <= self->rank();
  for (size_t dim = 0; fits && dim < self->rank(); ++dim) {
    const size_t outer = self->rank() - shape.size();
    fits = dim < outer || shape[dim - outer] == self->size(dim);
    (dim < outer ? rows.count : rows.n) *= self->size(dim);
  }
  if (!fits) {
    return context.fail(Code::kInvalidArgument, "normalized_shape ends the shape of %s; got %s",
                        self->describe().c_str(), describe(shape).c_str());
  }
  rows.channels = rows.n;
  EDGEWISE_RETURN_IF_ERROR(
      prepare(context, gradient, self, mean, deviation, weight, rows, Dims(shape), outs));
  return backward_of_rows(context, gradient, self, mean, deviation, weight, rows, outs);
}

// Sums of the gradient, and of it times the deviation from the mean, of neighbours.
struct RunSums {
  double gradient = 0, product = 0;
};

template <typename C>
RunSums sums_of_run(const C* g, const C* x, int64_t n, C mean) {
  constexpr int64_t kLanes = 16, kStretch = 512;  // few enough additions to a lane
  RunSums total;
  for (int64_t start = 0; start < n; start += kStretch) {
    C gradients[kLanes] = {}, products[kLanes] = {};
    const int64_t end = std::min(n, start + kStretch);
    int64_t i = start;
    for (; i + kLanes <= end; i += kLanes) {
      for (int64_t j = 0; j < kLanes; ++j) {
        gradients[j] += g[i + j];
        products[j] += g[i + j] * (x[i + j] - mean);
      }
    }
    for (int64_t j = 0; i + j < end; ++j) {
      gradients[j] += g[i + j];
      products[j] += g[i + j] * (x[i + j] - mean);
    }
    for (int64_t j = 0; j < kLanes; ++j) {
      total.gradient += static_cast<double>(gradients[j]);
      total.product += static_cast<double>(products[j]);
    }
  }
  return total;
}

// Of groups of channels, whose elements share a weight and are neighbours.
template <typename C>
Status backward_of_groups(const Tensor* gradient, const Tensor* self, const Tensor* mean,
                          const Tensor* deviation, const Tensor* weight, const Rows& rows,
                          std::array<Tensor*, 3> outs) {
  ComputeInput<C> x, g;
  ComputeInput<double> means, deviations, w;
  ComputeOutput<C> result;
  ComputeOutput<double> parameters[2];
  EDGEWISE_RETURN_IF_ERROR(x.read(view_of(*self), true));
  EDGEWISE_RETURN_IF_ERROR(g.read(view_of(*gradient), true));
  EDGEWISE_RETURN_IF_ERROR(means.read(view_of(*mean), true));
  EDGEWISE_RETURN_IF_ERROR(deviations.read(view_of(*deviation), true));
  if (weight) EDGEWISE_RETURN_IF_ERROR(w.read(view_of(*weight), true));
  if (outs[0]) EDGEWISE_RETURN_IF_ERROR(result.prepare(view_of(*outs[0]), true));
  for (size_t i = 0; i < 2; ++i) {
    if (!outs[i + 1]) continue;
    EDGEWISE_RETURN_IF_ERROR(parameters[i].prepare(view_of(*outs[i + 1]), true));
    std::fill_n(parameters[i].data, rows.channels, 0.0);
  }
  for (int64_t row = 0; row < rows.count; ++row) {
    const double middle = means.data[row], scale = deviations.data[row];
    double sum = 0, product = 0;
    for (int64_t k = 0; k < rows.n; k += rows.spatial) {
      const int64_t at = row * rows.n + k, channel = rows.channel(row, k);
      const RunSums sums =
          sums_of_run(g.data + at, x.data + at, rows.spatial, static_cast<C>(middle));
      const double factor = weight ? w.data[channel] : 1;
      sum += factor * sums.gradient;
      product += factor * sums.product * scale;
      if (outs[1]) parameters[0].data[channel] += sums.product * scale;
      if (outs[2]) parameters[1].data[channel] += sums.gradient;
    }
    // scale (weight g - (sum + normal product) / n), with normal = (x - mean) scale.
    const double n = static_cast<double>(rows.n);
    const C slope = static_cast<C>(-scale * scale * product / n);
    const C shift = static_cast<C>(-scale * sum / n), center = static_cast<C>(middle);
    for (int64_t k = 0; outs[0] && k < rows.n; k += rows.spatial) {
      const int64_t at = row * rows.n + k;
      const C* from = x.data + at;
      const C* slopes = g.data + at;
      C* to = result.data + at;
      const C factor = static_cast<C>(scale * (weight ? w.data[rows.channel(row, k)] : 1));
      EDGEWISE_INDEPENDENT
      for (int64_t i = 0; i < rows.spatial; ++i) {
        to[i] = factor * slopes[i] + slope * (from[i] - center) + shift;
      }
    }
  }
  if (outs[0]) EDGEWISE_RETURN_IF_ERROR(result.finish());
  for (size_t i = 0; i < 2; ++i) {
    if (outs[i + 1]) EDGEWISE_RETURN_IF_ERROR(parameters[i].finish());
  }
  return {};
}

Status group_norm_backward(KernelContext& context) {
  const Tensor* gradient = context.tensor(0);
  const Tensor* self = context.tensor(1);
  const Tensor* mean = context.tensor(2);
  const Tensor* deviation = context.tensor(3);
  const Tensor* weight = context.optional_tensor(4);
  const int64_t n = context.integer(5), channels = context.integer(6), spatial = context.integer(7);
  const int64_t groups = context.integer(8);
  const std::array<Tensor*, 3> outs{optional_output(context, 10), optional_output(context, 11),
                                    optional_output(context, 12)};
  if (!context.ok()) return context.status();
  int64_t numel = 0, count = 0;
  const bool fits = n >= 0 && channels > 0 && spatial > 0 && groups > 0 && channels % groups == 0 &&
                    !__builtin_mul_overflow(n, channels, &numel) &&
                    !__builtin_mul_overflow(numel, spatial, &numel) && numel == self->numel() &&
                    !__builtin_mul_overflow(n, groups, &count);
  if (!fits) {
    return context.fail(Code::kInvalidArgument,
                        "takes [N, C, ...] with C a multiple of the groups; got %s and %lld groups",
                        self->describe().c_str(), static_cast<long long>(groups));
  }
  const Rows rows{count, channels / groups * spatial, channels, groups, spatial};
  EDGEWISE_RETURN_IF_ERROR(prepare(context, gradient, self, mean, deviation, weight, rows,
                                   Dims(std::array{channels}), outs));
  return with_floating_type(self->type(), [&](auto c) {
    return finish(context, backward_of_groups<decltype(c)>(gradient, self, mean, deviation, weight,
                                                           rows, outs));
  });
}

constexpr KernelEntry kKernels[] = {
    {"aten::native_layer_norm_backward.out", 11, layer_norm_backward},
    {"aten::native_group_norm_backward.out", 13, group_norm_backward},
};
const KernelTable table(HWY_TARGET, kSelected<kKernels>);

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace edgewise
