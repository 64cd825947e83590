// Convolution and its transpose in one to three dimensions: a product of the weights
// with the input's patches, which are gathered a few output positions at a time.
#include "convolution.h"

#include "gemm.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

Status set_sizes(Geometry& g, const Tensor& input, const Tensor& weight, size_t spatial) {
  for (size_t dim = 0; dim < spatial; ++dim) {
    const size_t at = 3 - spatial + dim;
    g.in[at] = input.size(2 + dim);
    g.kernel[at] = weight.size(2 + dim);
    bool fits = g.in[at] < kSpatialLimit && g.kernel[at] > 0 && g.kernel[at] < kSpatialLimit;
    if (fits) {
      const int64_t reach = g.dilation[at] * (g.kernel[at] - 1);
      const int64_t room = g.in[at] + 2 * g.padding[at] - reach - 1;
      g.out[at] = g.transposed
                      ? (g.in[at] - 1) * g.stride[at] - 2 * g.padding[at] + reach + g.extra[at] + 1
                  : room < 0 ? 0
                             : room / g.stride[at] + 1;
    }
    if (!fits || g.out[at] <= 0) {
      return error(Code::kInvalidArgument, "the kernel fits into the padded input; got %s and %s",
                   input.describe().c_str(), weight.describe().c_str());
    }
  }
  return {};
}

}  // namespace

Status read_convolution(KernelContext& context, size_t index, const Tensor* input,
                        const Tensor* weight, const Tensor* bias, Convolution& result) {
  const std::vector<int64_t> stride = context.int_list(index),
                             padding = context.int_list(index + 1);
  const std::vector<int64_t> dilation = context.int_list(index + 2);
  const std::vector<int64_t> extra = context.int_list(index + 4);
  Geometry& g = result.geometry;
  g.transposed = context.boolean(index + 3);
  const int64_t groups = result.groups = context.integer(index + 5);
  if (!context.ok()) return context.status();
  int64_t& out_channels = result.out_channels;
  const size_t rank = input->rank();
  bool fits = rank >= 3 && rank <= 5 && weight->rank() == rank && weight->type() == input->type() &&
              groups > 0 && is_computable(input->type());
  if (fits) {
    // Weights are [out, in / groups, ...], transposed [in, out / groups, ...].
    const int64_t in_channels = input->size(1);
    fits = in_channels % groups == 0 && weight->size(0) % groups == 0 && weight->numel() > 0;
    if (g.transposed) {
      fits = fits && weight->size(0) == in_channels &&
             !__builtin_mul_overflow(weight->size(1), groups, &out_channels);
    } else {
      fits = fits && weight->size(1) == in_channels / groups;
      out_channels = weight->size(0);
    }
    fits = fits && (!bias || (bias->numel() == out_channels && is_computable(bias->type())));
  }
  if (!fits) {
    return context.fail(
        Code::kInvalidArgument,
        "takes [N, C, ...] and weights of that type for C / groups channels, with a "
        "bias for each output channel; got %s, %s, %lld groups",
        input->describe().c_str(), weight->describe().c_str(), static_cast<long long>(groups));
  }
  const size_t spatial = rank - 2;
  EDGEWISE_TRY(set_spatial(g.stride, spatial, 1, stride, "stride"));
  EDGEWISE_TRY(set_spatial(g.padding, spatial, 0, padding, "padding"));
  EDGEWISE_TRY(set_spatial(g.dilation, spatial, 1, dilation, "dilation"));
  if (g.transposed) EDGEWISE_TRY(set_spatial(g.extra, spatial, 0, extra, "output_padding"));
  EDGEWISE_TRY(set_sizes(g, *input, *weight, spatial));
  result.spatial = spatial;
  return context.status();
}

namespace {

// Columns of patches: panel[(channel, tap)][column] for output positions from `first` on,
// taken in runs that lie in one row of the output.
template <typename C>
void gather_patches(const Geometry& g, const C* image, const Dims& strides, int64_t channels,
                    int64_t first, int64_t count, C* panel) {
  const int64_t taps = g.taps(), step = strides[4] * g.stride[2];
  for (int64_t column = 0, run = 0; column < kGemmColumns; column += run) {
    if (column >= count) {
      run = kGemmColumns - column;
      for (int64_t i = 0; i < channels * taps; ++i) {
        std::fill_n(panel + i * kGemmColumns + column, run, C(0));
      }
      continue;
    }
    const int64_t position = first + column, left = position % g.out[2];
    const int64_t o[2] = {position / (g.out[1] * g.out[2]), position / g.out[2] % g.out[1]};
    run = std::min(count - column, g.out[2] - left);
    for (int64_t tap = 0; tap < taps; ++tap) {
      const int64_t kw = tap % g.kernel[2];
      const int64_t d = g.source(0, o[0], tap / (g.kernel[1] * g.kernel[2]));
      const int64_t h = g.source(1, o[1], tap / g.kernel[2] % g.kernel[1]);
      const C* row = image + d * strides[2] + h * strides[3];
      C* to = panel + tap * kGemmColumns + column;
      // Of the run, the part whose source is inside the image.
      int64_t begin = 0, end = d < 0 || h < 0 ? 0 : run;
      const int64_t w = left * g.stride[2] - g.padding[2] + kw * g.dilation[2];
      while (begin < end && w + begin * g.stride[2] < 0) ++begin;
      while (end > begin && w + (end - 1) * g.stride[2] >= g.in[2]) --end;
      for (int64_t c = 0; c < channels; ++c, to += taps * kGemmColumns) {
        const C* from = row + c * strides[1];
        if (step == 1 && end - begin == kGemmColumns) {
          std::memcpy(to, from + w, kGemmColumns * sizeof(C));
        } else {
          const C* source = from + w * strides[4];
          for (int64_t i = 0; i < begin; ++i) to[i] = 0;
          for (int64_t i = begin; i < end; ++i) to[i] = source[i * step];
          for (int64_t i = end; i < run; ++i) to[i] = 0;
        }
      }
    }
  }
}

// Whether the output's positions are equally far apart by these strides, also from one row to the
// next.
bool follow(const Geometry& g, const Dims& strides) {
  return (g.out[1] == 1 || strides[3] == g.out[2] * strides[4]) &&
         (g.out[0] == 1 || strides[2] == g.out[1] * g.out[2] * strides[4]);
}

// The first `count` positions, which fill panels, of a result in which they follow one another.
template <typename C>
Status convolve_panels(const Geometry& g, const C* image, const Dims& in_strides,
                       int64_t in_channels, const C* weights, const C* shifts, C* result,
                       int64_t out_stride, int64_t out_channels, int64_t count) {
  // Of a kernel of one tap the panel may be the image itself: no use in a copy that few rows read.
  const bool one_tap = g.taps() == 1 && g.stride == Triple{1, 1, 1} && g.padding == Triple{0, 0, 0};
  const bool as_is = one_tap && out_channels <= 32 && in_strides[4] == 1 && follow(g, in_strides);
  const int64_t k = in_channels * g.taps();
  Scratch<C> scratch;
  if (!as_is) EDGEWISE_RETURN_IF_ERROR(scratch.reserve(k * kGemmColumns));
  for (int64_t first = 0; first < count; first += kGemmColumns) {
    Panel<C> panel{scratch.data()};
    if (as_is) {
      panel = {image + first, in_strides[1]};
    } else {
      gather_patches(g, image, in_strides, in_channels, first, kGemmColumns, scratch.data());
    }
    gemm_rows<C>(weights, out_channels, k, panel, shifts, {result + first, out_stride});
  }
  return {};
}

// One output channel of one input channel: rows of the output are sums of shifted rows of
// the input.
template <typename C>
Status convolve_plane(const Geometry& g, const C* image, const Dims& in_strides, const C* weights,
                      C shift, C* result, const Dims& out_strides) {
  const int64_t width = g.out[2], step = in_strides[4] * g.stride[2];
  Scratch<C> sums;
  EDGEWISE_RETURN_IF_ERROR(sums.reserve(width));
  for (int64_t od = 0; od < g.out[0]; ++od) {
    for (int64_t oh = 0; oh < g.out[1]; ++oh) {
      std::fill_n(sums.data(), width, shift);
      for (int64_t tap = 0; tap < g.taps(); ++tap) {
        const int64_t kw = tap % g.kernel[2];
        const int64_t d = g.source(0, od, tap / (g.kernel[1] * g.kernel[2]));
        const int64_t h = g.source(1, oh, tap / g.kernel[2] % g.kernel[1]);
        if (d < 0 || h < 0) continue;
        const int64_t w = kw * g.dilation[2] - g.padding[2];
        int64_t begin = 0, end = width;
        while (begin < end && w + begin * g.stride[2] < 0) ++begin;
        while (end > begin && w + (end - 1) * g.stride[2] >= g.in[2]) --end;
        if (begin >= end) continue;
        const C* from = image + d * in_strides[2] + h * in_strides[3] + w * in_strides[4];
        C* to = sums.data();
        const C factor = weights[tap];
        if (step == 1) {
          EDGEWISE_INDEPENDENT
          for (int64_t i = begin; i < end; ++i) to[i] = wrap_add(to[i], wrap_mul(factor, from[i]));
        } else {
          for (int64_t i = begin; i < end; ++i) {
            to[i] = wrap_add(to[i], wrap_mul(factor, from[i * step]));
          }
        }
      }
      C* row = result + od * out_strides[2] + oh * out_strides[3];
      for (int64_t i = 0; i < width; ++i) row[i * out_strides[4]] = sums[i];
    }
  }
  return {};
}

// The transpose: products of the weights with the input's positions, each added to where its
// tap falls. Weights are [output channels, taps, input channels], row-major.
template <typename C>
Status convolve_transposed(const Geometry& g, const C* image, const Dims& in_strides,
                           int64_t in_channels, const C* weights, C* result,
                           const Dims& out_strides, int64_t out_channels) {
  const int64_t taps = g.taps(), pixels = g.in[0] * g.in[1] * g.in[2];
  const auto pack = [&](int64_t first, int64_t count, C* panel) {
    for (int64_t j = 0; j < kGemmColumns; ++j) {
      const int64_t p = first + j;
      const C* from = image + p / (g.in[1] * g.in[2]) * in_strides[2] +
                      p / g.in[2] % g.in[1] * in_strides[3] + p % g.in[2] * in_strides[4];
      for (int64_t c = 0; c < in_channels; ++c) {
        panel[c * kGemmColumns + j] = j < count ? from[c * in_strides[1]] : C(0);
      }
    }
  };
  const auto write = [&](int64_t row, int64_t first, int64_t count, const C* products) {
    const int64_t tap = row % taps;
    C* to = result + row / taps * out_strides[1];
    const int64_t shift_d = tap / (g.kernel[1] * g.kernel[2]) * g.dilation[0] - g.padding[0];
    const int64_t shift_h = tap / g.kernel[2] % g.kernel[1] * g.dilation[1] - g.padding[1];
    const int64_t shift_w = tap % g.kernel[2] * g.dilation[2] - g.padding[2];
    // Runs of positions in one row of the input.
    for (int64_t j = 0, run = 0; j < count; j += run) {
      const int64_t p = first + j, left = p % g.in[2];
      run = std::min(count - j, g.in[2] - left);
      const int64_t d = p / (g.in[1] * g.in[2]) * g.stride[0] + shift_d;
      const int64_t h = p / g.in[2] % g.in[1] * g.stride[1] + shift_h;
      if (d < 0 || d >= g.out[0] || h < 0 || h >= g.out[1]) continue;
      const int64_t w = left * g.stride[2] + shift_w;
      int64_t begin = 0, end = run;
      while (begin < end && w + begin * g.stride[2] < 0) ++begin;
      while (end > begin && w + (end - 1) * g.stride[2] >= g.out[2]) --end;
      C* sums = to + d * out_strides[2] + h * out_strides[3] + w * out_strides[4];
      const int64_t step = g.stride[2] * out_strides[4];
      EDGEWISE_INDEPENDENT
      for (int64_t i = begin; i < end; ++i) {
        sums[i * step] = wrap_add(sums[i * step], products[j + i]);
      }
    }
  };
  return gemm<C>(out_channels * taps, pixels, in_channels, weights, pack, write);
}

}  // namespace

template <typename C>
Status convolve(const Geometry& geometry, const View& input, const View& weight, const Tensor* bias,
                int64_t groups, const View& out) {
  // A transpose that leaves no gaps is a convolution with the kernel flipped.
  Geometry g = geometry;
  const bool flipped = g.transposed && g.stride == Triple{1, 1, 1};
  for (size_t dim = 0; flipped && dim < 3; ++dim) {
    g.padding[dim] = g.dilation[dim] * (g.kernel[dim] - 1) - g.padding[dim];
  }
  if (flipped) g.transposed = false;
  const int64_t in_channels = input.sizes[1] / groups, out_channels = out.sizes[1] / groups;
  ComputeInput<C> x, b;
  ComputeOutput<C> y;
  EDGEWISE_RETURN_IF_ERROR(x.read(input));
  if (bias) EDGEWISE_RETURN_IF_ERROR(b.read(view_of(*bias), true));
  EDGEWISE_RETURN_IF_ERROR(y.prepare(out));
  for (int64_t group = 0; group < groups; ++group) {
    // [output channels, input channels, taps], row-major.
    View part = weight.narrow(0, group * weight.sizes[0] / groups, weight.sizes[0] / groups);
    if (flipped) {
      std::swap(part.sizes[0], part.sizes[1]);
      std::swap(part.strides[0], part.strides[1]);
      for (size_t dim = 2; dim < part.sizes.size(); ++dim) {
        part.move((part.sizes[dim] - 1) * part.strides[dim]);
        part.strides[dim] = -part.strides[dim];
      }
    } else if (g.transposed) {  // input channels become the last dimension
      const int64_t size = part.sizes[0], stride = part.strides[0];
      part.sizes.erase(0), part.strides.erase(0);
      part.sizes.push(size), part.strides.push(stride);
    }
    ComputeInput<C> w;
    EDGEWISE_RETURN_IF_ERROR(w.read(part, true));
    for (int64_t n = 0; n < input.sizes[0]; ++n) {
      const C* image = x.data + n * x.strides[0] + group * in_channels * x.strides[1];
      C* result = y.data + n * y.strides[0] + group * out_channels * y.strides[1];
      if (g.transposed) {
        const View sums{reinterpret_cast<std::byte*>(result), kTypeOf<C>, y.sizes, y.strides};
        for (int64_t o = 0; o < out_channels; ++o) {
          C shift = bias ? b.data[group * out_channels + o] : C(0);
          const View one{reinterpret_cast<std::byte*>(&shift), kTypeOf<C>, Dims(), Dims()};
          const View plane = sums.select(0, 0).select(0, o);
          EDGEWISE_RETURN_IF_ERROR(assign(plane, one.expand(plane.sizes)));
        }
        EDGEWISE_RETURN_IF_ERROR(convolve_transposed(g, image, x.strides, in_channels, w.data,
                                                     result, y.strides, out_channels));
        continue;
      }
      if (in_channels == 1) {
        for (int64_t o = 0; o < out_channels; ++o) {
          const C shift = bias ? b.data[group * out_channels + o] : C(0);
          EDGEWISE_RETURN_IF_ERROR(convolve_plane(g, image, x.strides, w.data + o * g.taps(), shift,
                                                  result + o * y.strides[1], y.strides));
        }
        continue;
      }
      const C* shifts = bias ? b.data + group * out_channels : nullptr;
      int64_t done = 0;
      if (follow(g, y.strides) && y.strides[4] == 1) {
        done = g.positions() / kGemmColumns * kGemmColumns;
        EDGEWISE_RETURN_IF_ERROR(convolve_panels(g, image, x.strides, in_channels, w.data, shifts,
                                                 result, y.strides[1], out_channels, done));
      }
      const auto pack = [&](int64_t first, int64_t count, C* panel) {
        gather_patches(g, image, x.strides, in_channels, done + first, count, panel);
      };
      const auto write = [&](int64_t row, int64_t first, int64_t count, const C* products) {
        const C shift = shifts ? shifts[row] : C(0);
        C* to = result + row * y.strides[1];
        for (int64_t j = 0; j < count; ++j) {
          const int64_t p = done + first + j;
          to[p / (g.out[1] * g.out[2]) * y.strides[2] + p / g.out[2] % g.out[1] * y.strides[3] +
             p % g.out[2] * y.strides[4]] = wrap_add(products[j], shift);
        }
      };
      EDGEWISE_RETURN_IF_ERROR(
          gemm<C>(out_channels, g.positions() - done, in_channels * g.taps(), w.data, pack, write));
    }
  }
  return y.finish();
}

template Status convolve<float>(const Geometry&, const View&, const View&, const Tensor*, int64_t,
                                const View&);
template Status convolve<double>(const Geometry&, const View&, const View&, const Tensor*, int64_t,
                                 const View&);

namespace {

Status convolution(KernelContext& context) {
  const Tensor* input = context.tensor(0);
  const Tensor* weight = context.tensor(1);
  const Tensor* bias = context.optional_tensor(2);
  Tensor* out = output(context, 9);
  if (!context.ok()) return context.status();
  Convolution c;
  EDGEWISE_RETURN_IF_ERROR(read_convolution(context, 3, input, weight, bias, c));
  if (out->type() != input->type()) {
    return context.fail(Code::kInvalidArgument, "the output is as the input, %s; got %s",
                        input->describe().c_str(), out->describe().c_str());
  }
  EDGEWISE_TRY(out->resize(c.out_sizes(*input)));
  if (out->numel() == 0) return context.status();
  return with_short_compute_type(input->type(), [&](auto type) {
    return finish(context,
                  convolve<decltype(type)>(c.geometry, spatial_view(view_of(*input), c.spatial),
                                           view_of(*weight), bias, c.groups,
                                           spatial_view(view_of(*out), c.spatial)));
  });
}

constexpr KernelEntry kKernels[] = {
    {"aten::convolution.out", 10, convolution},
};
const KernelTable table(HWY_TARGET, kSelected<kKernels>);

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace edgewise
