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
constexpr size_t kShallowRows = 7;  // of which images' rows are multiples, as a rule

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
  Rows all{.rows = in_width_, .out = to, .out_stride = pixel_floats_};
  const size_t depth = before_.depth();
  if (nodes_.is_wide) {
    const Window& w = nodes_.before_window;
    all.in = spare;
    all.in_stride = w.stride[1] * source_.channels();
    all.segments = w.kernel[0];
    all.segment_stride = source_.row_size();
    for (size_t i = 0; i < w.kernel[0]; ++i) {
      source_.write_row(image, y * w.stride[0] + i, 0.0f, spare + i * all.segment_stride,
                        std::copy_n<const float*, size_t, float*>);
    }
  } else {
    all.in = image + y * in_width_ * depth;
    all.in_stride = depth;
  }
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
