// The geometry of a convolution or its transpose, and the checks of their arguments.
#pragma once

#include "windows.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {

// Spatial parameters; of fewer than three dimensions the first are units.
struct Geometry {
  std::array<int64_t, 3> in{1, 1, 1}, out{1, 1, 1}, kernel{1, 1, 1};
  std::array<int64_t, 3> stride{1, 1, 1}, padding{0, 0, 0}, dilation{1, 1, 1}, extra{0, 0, 0};
  bool transposed = false;

  int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  int64_t positions() const { return out[0] * out[1] * out[2]; }

  // Input coordinate that output coordinate `o` reads at kernel tap `t`, not of a transpose; -1 if
  // none.
  int64_t source(size_t dim, int64_t o, int64_t t) const {
    const int64_t i = o * stride[dim] - padding[dim] + t * dilation[dim];
    return i >= 0 && i < in[dim] ? i : -1;
  }
};

// What a call is about, when its arguments have been checked.
struct Convolution {
  Geometry geometry;
  int64_t groups = 1, out_channels = 0;
  size_t spatial = 1;

  Dims out_sizes(const Tensor& input) const {
    Dims sizes;
    sizes.push(input.size(0));
    sizes.push(out_channels);
    for (size_t dim = 3 - spatial; dim < 3; ++dim) sizes.push(geometry.out[dim]);
    return sizes;
  }
};

// Arguments stride, padding, dilation, transposed, output_padding, groups from `index` on.
Status read_convolution(KernelContext& context, size_t index, const Tensor* input,
                        const Tensor* weight, const Tensor* bias, Convolution& result);

// Input, weights and output [N, C, D, H, W], of which fewer dimensions are seen as that many.
template <typename C>
Status convolve(const Geometry& g, const View& input, const View& weight, const Tensor* bias,
                int64_t groups, const View& out);

}  // namespace HWY_NAMESPACE
}  // namespace edgewise
