// The gradients of a convolution: of its input, its weight and its bias.
#include "array_reductions.h"
#include "convolution.h"
#include "gemm.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

// The gradient of a convolution's input is the transposed convolution of the gradient, and the
// reverse.
Geometry transpose_of(const Geometry& g) {
  Geometry result = g;
  result.transposed = !g.transposed;
  std::swap(result.in, result.out);
  return result;
}

// The gradient of the weight: each is a sum of products over positions, of the gradient with
// what the tap has read there. Row-major operands; of a transposed convolution, gradient and input
// are swapped.
template <typename C>
Status weight_gradient(const Geometry& g, int64_t groups, int64_t batches, int64_t rows,
                       int64_t channels, const C* by_position, const C* image, C* result) {
  const int64_t positions = g.positions(), pixels = g.in[0] * g.in[1] * g.in[2], taps = g.taps();
  const int64_t part_rows = rows / groups, part_channels = channels / groups;
  for (int64_t n = 0; n < batches; ++n) {
    for (int64_t group = 0; group < groups; ++group) {
      const C* left = by_position + (n * rows + group * part_rows) * positions;
      const C* plane = image + (n * channels + group * part_channels) * pixels;
      C* to = result + group * part_rows * part_channels * taps;
      const auto pack = [&](int64_t first, int64_t count, C* panel) {
        struct {
          const C* from;  // the channel
          int64_t d, h, w;
          int64_t begin, end;  // positions of a row that read the image
        } taps_of[kGemmColumns];
        for (int64_t j = 0; j < count; ++j) {
          const int64_t channel = (first + j) / taps, tap = (first + j) % taps;
          auto& of = taps_of[j];
          of.from = plane + channel * pixels;
          of.d = tap / (g.kernel[1] * g.kernel[2]), of.h = tap / g.kernel[2] % g.kernel[1];
          of.w = tap % g.kernel[2] * g.dilation[2] - g.padding[2];
          of.begin = 0, of.end = g.out[2];
          while (of.begin < of.end && of.w + of.begin * g.stride[2] < 0) ++of.begin;
          while (of.end > of.begin && of.w + (of.end - 1) * g.stride[2] >= g.in[2]) --of.end;
        }
        // Row by row: what is written stays near until its columns are filled.
        C* block = panel;
        for (int64_t row = 0; row < g.out[0] * g.out[1]; ++row, block += g.out[2] * kGemmColumns) {
          std::fill_n(block, g.out[2] * kGemmColumns, C(0));
          const int64_t out_d = row / g.out[1], out_h = row % g.out[1];
          for (int64_t j = 0; j < count; ++j) {
            const auto& of = taps_of[j];
            const int64_t d = g.source(0, out_d, of.d), h = g.source(1, out_h, of.h);
            if (d < 0 || h < 0) continue;
            const C* from = of.from + (d * g.in[1] + h) * g.in[2] + of.w;
            for (int64_t o = of.begin; o < of.end; ++o) {
              block[o * kGemmColumns + j] = from[o * g.stride[2]];
            }
          }
        }
      };
      const auto write = [&](int64_t row, int64_t first, int64_t count, const C* products) {
        for (int64_t j = 0; j < count; ++j) {
          to[row * part_channels * taps + first + j] += products[j];
        }
      };
      EDGEWISE_RETURN_IF_ERROR(
          gemm<C>(part_rows, part_channels * taps, positions, left, pack, write));
    }
  }
  return {};
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
  for (size_t i = 0; i < 3; ++i) {
    if (outs[i]) EDGEWISE_TRY(outs[i]->resize(sizes[i]));
  }
  if (outs[0] && outs[0]->numel() > 0) {
    const Tensor* image = outs[0];
    EDGEWISE_TRY(with_floating_type(input->type(), [&](auto type) {
      return convolve<decltype(type)>(transpose_of(c.geometry),
                                      spatial_view(view_of(*gradient), c.spatial), view_of(*weight),
                                      nullptr, c.groups, spatial_view(view_of(*image), c.spatial));
    }));
  }
  return with_floating_type(input->type(), [&](auto type) -> Status {
    using C = decltype(type);
    ComputeInput<C> g, x;
    ComputeOutput<C> slope;
    EDGEWISE_TRY(g.read(view_of(*gradient), true));
    const int64_t batches = input->size(0), positions = c.geometry.positions();
    if (outs[1]) {
      EDGEWISE_TRY(x.read(view_of(*input), true));
      EDGEWISE_TRY(slope.prepare(view_of(*outs[1]), true));
      std::fill_n(slope.data, outs[1]->numel(), C(0));
      // A transpose's taps read the gradient at the input's positions.
      const bool transposed = c.geometry.transposed;
      EDGEWISE_TRY(weight_gradient(transposed ? transpose_of(c.geometry) : c.geometry, c.groups,
                                   batches, transposed ? input->size(1) : c.out_channels,
                                   transposed ? c.out_channels : input->size(1),
                                   transposed ? x.data : g.data, transposed ? g.data : x.data,
                                   slope.data));
      EDGEWISE_TRY(slope.finish());
    }
    if (outs[2]) {
      const View bias = view_of(*outs[2]);
      for (int64_t o = 0; o < c.out_channels; ++o) {
        double sum = 0;
        for (int64_t n = 0; n < batches; ++n) {
          sum += sum_of(g.data + (n * c.out_channels + o) * positions, positions);
        }
        store<double>(bias.type, &sum, 1, bias.at(o * bias.strides[0]), 1);
      }
    }
    return {};
  });
}

constexpr KernelEntry kKernels[] = {
    {"aten::convolution_backward.out", 14, convolution_backward},
};
const KernelTable table(HWY_TARGET, kSelected<kKernels>);

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace edgewise
