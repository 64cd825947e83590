// Batch normalization, with given statistics or with those of the batch.
#include <cmath>

#include "array_reductions.h"
#include "compute_tensor.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

// Where the overloads have their arguments. Weight and bias are 1 and 2 in all.
struct Layout {
  size_t statistics;  // running mean and variance; 0: none
  size_t training;    // 0: never
  size_t momentum;    // eps follows, then the outputs
  bool updates;       // two more outputs: new running statistics
};

Status read_optional(const Tensor* tensor, int64_t count, ComputeInput<double>& input) {
  if (!tensor) return {};
  if (tensor->numel() != count || !is_floating(tensor->type())) {
    return error(Code::kInvalidArgument, "parameters have %lld elements; got %s",
                 static_cast<long long>(count), tensor->describe().c_str());
  }
  return input.read(view_of(*tensor), true);
}

struct Moments {
  double mean, variance, count;
};

// Of one channel; two passes, in double.
template <typename C>
Moments moments(const C* x, const Loop<2>& loop) {
  double sum = 0, squares = 0, count = 0;
  loop.run([&](const auto& offsets, int64_t n, const auto& steps) {
    if (steps[1] == 1) {
      sum += sum_of(x + offsets[1], n);
    } else {
      for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[offsets[1] + i * steps[1]]);
    }
    count += static_cast<double>(n);
  });
  const double mean = sum / count;
  loop.run([&](const auto& offsets, int64_t n, const auto& steps) {
    if (steps[1] == 1) {
      squares += squared_deviations(x + offsets[1], n, mean);
      return;
    }
    for (int64_t i = 0; i < n; ++i) {
      const double delta = static_cast<double>(x[offsets[1] + i * steps[1]]) - mean;
      squares += delta * delta;
    }
  });
  return {mean, squares / count, count};
}

Status batch_norm(KernelContext& context, const Layout& layout) {
  const Tensor* self = context.tensor(0);
  const Tensor* weight = context.optional_tensor(1);
  const Tensor* bias = context.optional_tensor(2);
  const Tensor* given_mean = nullptr;
  const Tensor* given_variance = nullptr;
  if (layout.statistics) {
    given_mean = context.optional_tensor(layout.statistics);
    given_variance = context.optional_tensor(layout.statistics + 1);
  }
  const bool training = layout.training && context.boolean(layout.training);
  const double momentum = context.number(layout.momentum);
  const double eps = context.number(layout.momentum + 1);
  const size_t out_count = layout.updates ? 5 : 3;
  Tensor* outs[5] = {};
  for (size_t i = 0; i < out_count; ++i) outs[i] = output(context, layout.momentum + 2 + i);
  if (!context.ok()) return context.status();
  EDGEWISE_RETURN_IF_ERROR(check_floating(context, self));
  for (size_t i = 0; i < out_count; ++i) EDGEWISE_RETURN_IF_ERROR(check_floating(context, outs[i]));
  const bool empty = self->numel() == 0;
  if ((self->rank() < 2 && !empty) || (!training && (!given_mean || !given_variance)) ||
      (layout.updates && (!given_mean || !given_variance))) {
    return context.fail(Code::kInvalidArgument,
                        "takes [N, C, ...], with running statistics unless in training; got %s",
                        self->describe().c_str());
  }
  EDGEWISE_TRY(outs[0]->resize(self->sizes()));
  const int64_t channels = self->rank() < 2 ? 0 : self->size(1);
  for (size_t i = 1; i < out_count; ++i) {
    EDGEWISE_TRY(outs[i]->resize(std::array{i < 3 && !training ? int64_t{0} : channels}));
  }
  if (channels == 0) return context.status();
  return with_floating_type(self->type(), [&](auto c) -> Status {
    using C = decltype(c);
    ComputeInput<C> x;
    ComputeInput<double> w, b, means, variances;
    ComputeOutput<C> y;
    EDGEWISE_TRY(x.read(view_of(*self)));
    EDGEWISE_TRY(read_optional(weight, channels, w));
    EDGEWISE_TRY(read_optional(bias, channels, b));
    EDGEWISE_TRY(read_optional(given_mean, channels, means));
    EDGEWISE_TRY(read_optional(given_variance, channels, variances));
    EDGEWISE_TRY(y.prepare(view_of(*outs[0])));
    Dims sizes = x.sizes, in_strides = x.strides, out_strides = y.strides;
    sizes.erase(1), in_strides.erase(1), out_strides.erase(1);
    const Loop<2> loop(sizes, {&out_strides, &in_strides});
    for (int64_t channel = 0; channel < channels; ++channel) {
      const C* in = x.data + channel * x.strides[1];
      Moments m{};
      if (training) {
        m = moments(in, loop);
      } else {
        m = {means.data[channel], variances.data[channel], 0};
      }
      const double inverse = 1.0 / std::sqrt(m.variance + eps);
      const auto put = [&](size_t output, double value) {
        const View view = view_of(*outs[output]);
        store<double>(view.type, &value, 1, view.at(channel), 1);
      };
      if (training) put(1, m.mean), put(2, inverse);
      if (layout.updates) {
        const double part = training ? momentum : 0;
        const double unbiased = m.variance * (m.count / (m.count - 1));
        put(3, part * m.mean + (1 - part) * means.data[channel]);
        put(4, (training ? part * unbiased : 0) + (1 - part) * variances.data[channel]);
      }
      const double gain = inverse * (w.data ? w.data[channel] : 1);
      const C scale = static_cast<C>(gain);
      const C shift = static_cast<C>((b.data ? b.data[channel] : 0) - gain * m.mean);
      C* result = y.data + channel * y.strides[1];
      loop.run([&](const auto& offsets, int64_t count, const auto& steps) {
        const C* from = in + offsets[1];
        C* to = result + offsets[0];
        if (steps[0] == 1 && steps[1] == 1) {
          for (int64_t i = 0; i < count; ++i) to[i] = from[i] * scale + shift;
        } else {
          for (int64_t i = 0; i < count; ++i) to[i * steps[0]] = from[i * steps[1]] * scale + shift;
        }
      });
    }
    return finish(context, y.finish());
  });
}

constexpr Layout kInference{3, 0, 5, false};
constexpr Layout kOfBatch{0, 3, 4, false};
constexpr Layout kEither{3, 5, 6, false};
constexpr Layout kFunctional{3, 5, 6, true};

template <const Layout& kLayout>
Status batch_norm(KernelContext& context) {
  return batch_norm(context, kLayout);
}

constexpr KernelEntry kKernels[] = {
    {"aten::_native_batch_norm_legit_no_training.out", 10, batch_norm<kInference>},
    {"aten::_native_batch_norm_legit.no_stats_out", 9, batch_norm<kOfBatch>},
    {"aten::native_batch_norm.out", 11, batch_norm<kEither>},
    {"aten::_native_batch_norm_legit_functional.out", 13, batch_norm<kFunctional>},
};
const KernelTable table(HWY_TARGET, kSelected<kKernels>);

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace edgewise
