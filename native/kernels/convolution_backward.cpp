// The gradients of a convolution: of its input, its weight and its bias.
#include "convolution.h"

namespace edgewise::inline EDGEWISE_TARGET {
namespace {

struct Gradients {
  double *input = nullptr, *weight = nullptr, *bias = nullptr;  // row-major; null: not wanted
};

// Every product of the convolution, turned round; row-major operands.
void accumulate(const Convolution& c, int64_t batches, int64_t in_channels, const double* gradient,
                const double* x, const double* w, const Gradients& to) {
  const Geometry& g = c.geometry;
  const int64_t pixels = g.in[0] * g.in[1] * g.in[2], taps = g.taps();
  const int64_t ins = in_channels / c.groups, outs = c.out_channels / c.groups;
  for (int64_t n = 0; n < batches; ++n) {
    for (int64_t o = 0; o < c.out_channels; ++o) {
      const int64_t first = o / outs * ins;  // input channel of the group
      for (int64_t p = 0; p < g.positions(); ++p) {
        const double slope = gradient[(n * c.out_channels + o) * g.positions() + p];
        if (to.bias) to.bias[o] += slope;
        if (!to.input && !to.weight) continue;
        for (int64_t t = 0; t < taps; ++t) {
          const int64_t d = g.source(0, p / (g.out[1] * g.out[2]), t / (g.kernel[1] * g.kernel[2]));
          const int64_t h = g.source(1, p / g.out[2] % g.out[1], t / g.kernel[2] % g.kernel[1]);
          const int64_t v = g.source(2, p % g.out[2], t % g.kernel[2]);
          if (d < 0 || h < 0 || v < 0) continue;
          const int64_t pixel = (d * g.in[1] + h) * g.in[2] + v;
          for (int64_t i = 0; i < ins; ++i) {
            const int64_t at = (n * in_channels + first + i) * pixels + pixel;
            const int64_t tap = g.transposed ? ((first + i) * outs + o % outs) * taps + t
                                             : (o * ins + i) * taps + t;
            if (to.input) to.input[at] += slope * w[tap];
            if (to.weight) to.weight[tap] += slope * x[at];
          }
        }
      }
    }
  }
}

Status convolution_backward(KernelContext& context) {
  const Tensor* gradient = context.tensor(0);
  const Tensor* input = context.tensor(1);
  const Tensor* weight = context.tensor(2);
  Tensor* outs[3] = {};
  for (size_t i = 0; i < 3; ++i) {
    const Value* value = context.value(11 + i);
    if (value && !value->is_none()) outs[i] = output(context, 11 + i);
  }
  if (!context.ok()) return context.status();
  EDGEWISE_RETURN_IF_ERROR(check_floating(context, input));
  Convolution c;
  EDGEWISE_RETURN_IF_ERROR(read_convolution(context, 4, input, weight, nullptr, c));
  bool fits = gradient->type() == input->type() && Dims(gradient->sizes()) == c.out_sizes(*input);
  for (const Tensor* out : outs) fits = fits && (!out || is_floating(out->type()));
  if (!fits) {
    return context.fail(Code::kInvalidArgument, "the gradient is that of the output, %s; got %s",
                        describe(c.out_sizes(*input)).c_str(), gradient->describe().c_str());
  }
  const Dims sizes[3] = {Dims(input->sizes()), Dims(weight->sizes()),
                         Dims(std::array{c.out_channels})};
  ComputeInput<double> g, x, w;
  ComputeOutput<double> results[3];
  EDGEWISE_TRY(g.read(view_of(*gradient), true));
  EDGEWISE_TRY(x.read(view_of(*input), true));
  EDGEWISE_TRY(w.read(view_of(*weight), true));
  for (size_t i = 0; i < 3; ++i) {
    if (!outs[i]) continue;
    EDGEWISE_TRY(outs[i]->resize(sizes[i]));
    EDGEWISE_TRY(results[i].prepare(view_of(*outs[i]), true));
    std::fill_n(results[i].data, outs[i]->numel(), 0.0);
  }
  accumulate(c, input->size(0), input->size(1), g.data, x.data, w.data,
             {results[0].data, results[1].data, results[2].data});
  for (size_t i = 0; i < 3; ++i) {
    if (outs[i]) EDGEWISE_TRY(results[i].finish());
  }
  return context.status();
}

constexpr KernelEntry kKernels[] = {
    {"aten::convolution_backward.out", 14, convolution_backward},
};
const KernelTable table(EDGEWISE_LEVEL, kKernels);

}  // namespace
}  // namespace edgewise::inline EDGEWISE_TARGET
