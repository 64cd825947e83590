// How tiles of a Winograd convolution cover the images of a batch, and which pixels they read.
#pragma once

#include "backends/xnnpack/executor/parallel.h"
#include "backends/xnnpack/graph.h"

namespace edgewise::xnnpack {

// Convolutions that Winograd's algorithm is for: 3x3, of stride 1, without dilation and groups.
inline bool suits_winograd(const GraphNode& node) {
  const Window& w = node.window;
  return node.kind == NodeKind::kConv2d && node.flags == 0 && w.groups == 1 && w.kernel[0] == 3 &&
         w.kernel[1] == 3 && w.stride[0] == 1 && w.stride[1] == 1 && w.dilation[0] == 1 &&
         w.dilation[1] == 1;
}
inline constexpr const char* kWinogradNodeRule =
    "a 3x3 convolution, stride 1, no dilation, no groups";

// Of the batch, with `size` x `size` results each.
inline size_t winograd_tiles(const Shape& out, size_t size) {
  return out[0] * divide_up(out[1], size) * divide_up(out[2], size);
}

class WinogradTiles {
 public:
  // A tile has `out` x `out` results, of `in` x `in` pixels.
  WinogradTiles(size_t out, size_t in, const Window& window)
      : out_(out), in_(in), pad_top_(window.pad_top), pad_left_(window.pad_left) {}

  void reshape(const Shape& in, const Shape& out) {
    in_height_ = in[1];
    in_width_ = in[2];
    out_height_ = out[1];
    out_width_ = out[2];
    columns_ = divide_up(out_width_, out_);
    per_image_ = divide_up(out_height_, out_) * columns_;
    count_ = winograd_tiles(out, out_);
  }
  // Of the batch.
  size_t count() const { return count_; }

  // Row by row, the pixels that `tile` reads; `padding` for those beside the image. Each has
  // `channels` elements.
  template <typename T>
  void pixels(size_t tile, const T* images, size_t channels, const T* padding, const T** to) const {
    const T* image = images + tile / per_image_ * in_height_ * in_width_ * channels;
    for (size_t i = 0; i < in_; ++i) {
      // Positions before the image wrap around to beyond it.
      const size_t y = row(tile) + i - pad_top_;
      for (size_t j = 0; j < in_; ++j) {
        const size_t x = column(tile) + j - pad_left_;
        *to++ = y < in_height_ && x < in_width_ ? image + (y * in_width_ + x) * channels : padding;
      }
    }
  }

  // Row by row, the results of `tile`; null for those beyond the image.
  template <typename T>
  void results(size_t tile, T* images, size_t channels, T** to) const {
    T* image = images + tile / per_image_ * out_height_ * out_width_ * channels;
    for (size_t y = row(tile); y < row(tile) + out_; ++y) {
      for (size_t x = column(tile); x < column(tile) + out_; ++x) {
        const bool is_inside = y < out_height_ && x < out_width_;
        *to++ = is_inside ? image + (y * out_width_ + x) * channels : nullptr;
      }
    }
  }

 private:
  // Of the first result.
  size_t row(size_t tile) const { return tile % per_image_ / columns_ * out_; }
  size_t column(size_t tile) const { return tile % columns_ * out_; }

  const size_t out_, in_;
  const size_t pad_top_, pad_left_;
  size_t in_height_ = 0, in_width_ = 0;
  size_t out_height_ = 0, out_width_ = 0;
  size_t columns_ = 0, per_image_ = 0, count_ = 0;
};

}  // namespace edgewise::xnnpack
