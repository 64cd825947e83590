// Images with one to three spatial dimensions as ones with three, and the windows that
// poolings move over them.
#pragma once

#include <array>
#include <vector>

#include "compute_tensor.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {

using Triple = std::array<int64_t, 3>;

// Numbers this large appear in no model, and products of two of them do not overflow.
inline constexpr int64_t kSpatialLimit = int64_t{1} << 30;

// One number for all of the `spatial` last dimensions, or one for each.
Status set_spatial(Triple& target, size_t spatial, int64_t least,
                   const std::vector<int64_t>& values, const char* name);

// [N, C, D, H, W], N and leading spatial dimensions of 1 where the view has none.
View spatial_view(View view, size_t spatial);

// [C, ...] or [N, C, ...] of numbers, sizes below kSpatialLimit, `other` of the same type.
Status check_image(const Tensor& self, size_t spatial, const Tensor& other);

// Of `self`, with other spatial sizes.
Dims with_spatial(const Tensor& self, size_t spatial, const Triple& sizes);

// What one output coordinate covers: first, first + step, ... below last.
struct Span {
  int64_t first = 0, last = 0, step = 1;
  int64_t padded = 0;  // length, padding counted

  int64_t count() const { return last > first ? (last - first - 1) / step + 1 : 0; }
};

// First slide() or adapt(), which find the output's sizes; then, when an output has been
// resized to them (which bounds what a file can ask for), build().
class Windows {
 public:
  // Arguments kernel_size, stride, padding (and dilation) from `index` on.
  Status slide(KernelContext& context, size_t index, const Tensor& self, size_t spatial,
               bool dilated, bool ceil_mode);
  Status adapt(const Tensor& self, size_t spatial, const std::vector<int64_t>& output_size);
  Status build();

  Triple in{1, 1, 1}, out{1, 1, 1};
  Scratch<Span> spans[3];

  // Calls f(spans of d, h, w; d, h, w) for the output coordinates in row-major order.
  template <typename F>
  void each(F&& f) const {
    for (int64_t d = 0; d < out[0]; ++d) {
      for (int64_t h = 0; h < out[1]; ++h) {
        for (int64_t w = 0; w < out[2]; ++w) f(spans[0][d], spans[1][h], spans[2][w], d, h, w);
      }
    }
  }

 private:
  Triple kernel_{1, 1, 1}, stride_{1, 1, 1}, padding_{0, 0, 0}, dilation_{1, 1, 1};
  bool adaptive_ = false;
};

// Calls f(n, c) for all planes of a view as spatial_view gives it.
template <typename F>
void for_planes(const Dims& sizes, F&& f) {
  for (int64_t n = 0; n < sizes[0]; ++n) {
    for (int64_t c = 0; c < sizes[1]; ++c) f(n, c);
  }
}

inline int64_t plane_offset(const Dims& strides, int64_t n, int64_t c) {
  return n * strides[0] + c * strides[1];
}
inline int64_t pixel_offset(const Dims& strides, int64_t d, int64_t h, int64_t w) {
  return d * strides[2] + h * strides[3] + w * strides[4];
}

}  // namespace HWY_NAMESPACE
}  // namespace edgewise
