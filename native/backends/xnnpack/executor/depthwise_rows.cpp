// What a FusedDepthwise does to a row: it is read, passes through the first convolution, and the
// depthwise convolution.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "backends/xnnpack/executor/fused_depthwise.h"
#include "backends/xnnpack/executor/parallel.h"

namespace edgewise::xnnpack {
namespace {

// Products of less depth take more time to begin and end a tile: the next one overlaps a small one.
constexpr size_t kShallow = 64;
constexpr size_t kShallowRows = 8;

// Of three colours and taps, as a rule: short for a call.
inline void copy_run(const float* from, size_t count, float* to) {
  constexpr size_t kUsual = 9;
  if (count == kUsual) {
    std::memcpy(to, from, kUsual * sizeof(float));
  } else {
    std::copy_n(from, count, to);
  }
}

// Of each of `pixels`: `count` floats.
void copy_panel(const float* from, size_t from_stride, size_t count, size_t pixels, float* to,
                size_t to_stride) {
  const auto copy = [&](auto known) {
#pragma GCC unroll 4
    for (size_t x = 0; x < pixels; ++x, from += from_stride, to += to_stride) {
      std::memcpy(to, from, (known == 0 ? count : known) * sizeof(float));
    }
  };
  // Of a whole panel: without a call for each pixel.
  if (count == 8) return copy(std::integral_constant<size_t, 8>());
  if (count == 16) return copy(std::integral_constant<size_t, 16>());
  if (count == 32) return copy(std::integral_constant<size_t, 32>());
  copy(std::integral_constant<size_t, 0>());
}

}  // namespace

void FusedDepthwise::gather_row(const float* image, size_t y, float* to) const {
  const Window& w = nodes_.before_window;
  const size_t channels = source_channels_;
  const size_t run = w.kernel[1] * channels;  // of a window's row
  const size_t depth = before_.depth();
  for (size_t i = 0; i < w.kernel[0]; ++i, to += run) {
    // Positions before the image wrap around to beyond it.
    const size_t from_y = y * w.stride[0] + i - w.pad_top;
    const float* row =
        from_y < source_height_ ? image + from_y * source_width_ * channels : nullptr;
    for (size_t x = 0; x < in_width_; ++x) {
      const size_t left = x * w.stride[1] - w.pad_left;
      float* window = to + x * depth;
      if (row == nullptr) {
        std::fill_n(window, run, 0.0f);
      } else if (left < source_width_ && left + w.kernel[1] <= source_width_) {
        copy_run(row + left * channels, run, window);
      } else {
        for (size_t j = 0; j < run; ++j) {
          const size_t from_x = left + j / channels;
          window[j] = from_x < source_width_ ? row[from_x * channels + j % channels] : 0.0f;
        }
      }
    }
  }
}

void FusedDepthwise::clear_padding(float* ring) const {
  const size_t before = nodes_.window.pad_left * pixel_floats_;
  const size_t after = before + in_width_ * pixel_floats_;
  for (size_t i = 0; i < ring_rows_; ++i, ring += row_floats_) {
    std::fill(ring, ring + before, 0.0f);
    std::fill(ring + after, ring + row_floats_, 0.0f);
  }
}

void FusedDepthwise::fill_row(const float* image, size_t y, size_t panel, float* ring,
                              float* spare) const {
  const size_t columns = kernels_.columns;
  const size_t size = row_floats_;
  float* row = ring + y % ring_rows_ * size;
  // Rows before the image wrap around to beyond it.
  y -= nodes_.window.pad_top;
  if (y >= in_height_) {
    std::fill_n(row, size, 0.0f);
    return;
  }
  float* to = row + nodes_.window.pad_left * pixel_floats_;
  if (!nodes_.before) {
    const size_t count = std::min(columns, channels_ - panel * columns);
    const float* from = image + y * in_width_ * channels_ + panel * columns;
    copy_panel(from, channels_, count, in_width_, to, pixel_floats_);
    return;
  }
  const size_t depth = before_.depth();
  const float* from = image + y * in_width_ * depth;
  if (nodes_.gathers) {
    gather_row(image, y, spare);
    from = spare;
  }
  const Rows all{
      .rows = in_width_, .in = from, .in_stride = depth, .out = to, .out_stride = pixel_floats_};
  before_.run_padded(panel, all,
                     depth < kShallow ? std::min(kernels_.rows, kShallowRows) : kernels_.rows);
  if (nodes_.swishes_before) kernels_.hardswish(to, in_width_ * pixel_floats_);
}

void FusedDepthwise::convolve_row(size_t y, size_t panel, const float* ring, float* results,
                                  float* spare) const {
  const size_t columns = kernels_.columns;
  const Window& w = nodes_.window;
  const size_t count = std::min(columns, channels_ - panel * columns);
  // Whole vectors would reach into the next pixel.
  const bool is_beside = !nodes_.after && count % kernels_.lanes != 0;
  results += panel * columns;
  DepthwiseRow row{.side = side_,
                   .rows = {},
                   .pixel_stride = pixel_floats_,
                   .step = w.stride[1] * pixel_floats_,
                   .weights = weights_.data() + panel * (side_ * side_ + 1) * columns,
                   .columns = count,
                   .count = out_width_,
                   .out = is_beside ? spare : results,
                   .out_stride = is_beside ? columns : result_stride(),
                   .min = nodes_.min,
                   .max = nodes_.max,
                   .swishes = nodes_.swishes};
  size_t slot = y * w.stride[0] % ring_rows_;
  for (size_t i = 0; i < side_; ++i, slot = slot + 1 == ring_rows_ ? 0 : slot + 1) {
    row.rows[i] = ring + slot * row_floats_;
  }
  kernels_.depthwise(row);
  if (!is_beside) return;
  for (size_t x = 0; x < out_width_; ++x, results += channels_, spare += columns) {
    std::copy_n(spare, count, results);
  }
}

}  // namespace edgewise::xnnpack
