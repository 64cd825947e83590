#include "backends/xnnpack/steps/depthwise_step.h"

#include <algorithm>

#include "backends/xnnpack/steps/panels.h"
#include "backends/xnnpack/steps/parallel.h"

namespace edgewise::xnnpack {
namespace {

// What stays in a core's cache while rows pass by: the weights of both products.
constexpr size_t kCachedWeights = 512 * 1024;
// Of a group of rows: enough for whole tiles of the products.
constexpr size_t kGroupPixels = 56;
// Of a band: its neighbours compute rows of the first product again.
constexpr size_t kBandRows = 28;
constexpr size_t kMostBands = 4;  // for each thread

size_t product_bytes(const Shape& in, const Shape& out, const FloatKernels& kernels) {
  return in.last() * padded_columns(kernels, out.last()) * sizeof(float);
}

}  // namespace

bool suits_depthwise(const std::vector<Shape>& shapes, const DepthwiseNodes& nodes,
                     const FloatKernels& kernels) {
  const size_t channels = shapes[nodes.input].last();
  size_t weights = product_bytes(shapes[nodes.after.input], shapes[nodes.after.output], kernels);
  if (nodes.before) {
    weights += product_bytes(shapes[nodes.before->input], shapes[nodes.input], kernels);
  }
  return kernels.rows > 8 && padded_columns(kernels, channels) * 8 <= channels * 9 &&
         weights <= kCachedWeights;
}

Result<std::unique_ptr<Step>> DepthwiseStep::make(const Graph& graph, const DepthwiseNodes& nodes,
                                                  const FloatKernels& kernels,
                                                  ProgramState& state) {
  std::unique_ptr<DepthwiseStep> step(new DepthwiseStep(kernels, state.threadpool()));
  step->nodes_ = nodes;
  step->reads_ = {step->input()};
  if (nodes.after.residual != kNone) step->reads_.push_back(nodes.after.residual);
  step->writes_ = {nodes.after.output};
  if (nodes.before) {
    auto before = PackedProduct::make(graph, *nodes.before, kernels, state);
    if (!before.ok()) return before.status();
    step->before_ = std::move(*before);
  }
  const size_t channels = graph.values[nodes.filter].shape.last();
  const size_t columns = kernels.columns;
  const size_t panels = padded_columns(kernels, channels) / columns;
  const std::string form =
      std::string("depthwise ") + kernels.name + " " + std::to_string(channels);
  auto weights = StepWeights::make(
      graph, nodes.filter, nodes.bias, panels * (kDepthwiseTaps + 1) * columns, form, state,
      [&](const float* filter, const float* bias, float* packed) {
        for (size_t panel = 0; panel < panels; ++panel) {
          const size_t first = panel * columns;
          const size_t count = std::min(columns, channels - first);
          for (size_t tap = 0; tap <= kDepthwiseTaps; ++tap, packed += columns) {
            const float* from = tap == kDepthwiseTaps ? bias : filter + tap * channels;
            std::fill_n(packed, columns, 0.0f);
            if (from != nullptr) std::copy_n(from + first, count, packed);
          }
        }
      });
  if (!weights.ok()) return weights.status();
  step->weights_ = std::move(*weights);
  auto after = PackedProduct::make(graph, nodes.after, kernels, state);
  if (!after.ok()) return after.status();
  step->after_ = std::move(*after);
  step->channels_ = channels;
  step->panels_ = panels;
  return std::unique_ptr<Step>(std::move(step));
}

Status DepthwiseStep::reshape(const std::vector<Shape>& shapes) {
  const Shape& in = shapes[nodes_.input];
  const Shape& out = shapes[nodes_.after.input];
  images_ = in[0];
  in_height_ = in[1];
  in_width_ = in[2];
  out_height_ = out[1];
  out_width_ = out[2];
  const size_t threads = threads_of(threads_);
  const size_t bands = threads * std::clamp<size_t>(out_height_ / (threads * kBandRows), 1,
                                                    kMostBands);
  bands_ = threads == 1 ? 1 : std::min(divide_up(bands, images_), out_height_);
  group_rows_ = std::min(std::max<size_t>(kGroupPixels / out_width_, 1),
                         divide_up(out_height_, bands_));
  ring_rows_ = (group_rows_ - 1) * nodes_.window.stride[0] + kDepthwiseSide;
  return {};
}

size_t DepthwiseStep::row_floats() const {
  const Window& w = nodes_.window;
  const size_t read = (out_width_ - 1) * w.stride[1] + kDepthwiseSide;
  return std::max(read, w.pad_left + in_width_) * kernels_.columns;
}

size_t DepthwiseStep::ring_floats() const { return ring_rows_ * row_floats(); }

size_t DepthwiseStep::thread_floats() const {
  return panels_ * (ring_floats() + group_rows_ * out_width_ * kernels_.columns);
}

size_t DepthwiseStep::scratch_bytes() const {
  return threads_of(threads_) * thread_floats() * sizeof(float);
}

Status DepthwiseStep::set_pointers(std::span<void* const> addresses, std::byte* scratch) {
  input_ = static_cast<const float*>(addresses[input()]);
  output_ = static_cast<float*>(addresses[nodes_.after.output]);
  if (nodes_.after.residual != kNone) {
    residual_ = static_cast<const float*>(addresses[nodes_.after.residual]);
  }
  scratch_ = reinterpret_cast<float*>(scratch);
  return {};
}

void DepthwiseStep::fill_row(const float* image, size_t y, size_t panel, float* ring) const {
  const size_t columns = kernels_.columns;
  const size_t size = row_floats();
  float* row = ring + y % ring_rows_ * size;
  // Rows before the image wrap around to beyond it.
  y -= nodes_.window.pad_top;
  if (y >= in_height_) {
    std::fill_n(row, size, 0.0f);
    return;
  }
  float* to = row + nodes_.window.pad_left * columns;
  float* end = to + in_width_ * columns;
  std::fill(row, to, 0.0f);
  std::fill(end, row + size, 0.0f);
  if (!nodes_.before) {
    const size_t count = std::min(columns, channels_ - panel * columns);
    const float* from = image + y * in_width_ * channels_ + panel * columns;
    for (; to != end; to += columns, from += channels_) std::copy_n(from, count, to);
    return;
  }
  const size_t depth = before_.depth();
  const float* from = image + y * in_width_ * depth;
  const size_t tiles = divide_up(in_width_, kernels_.rows);
  for (size_t tile = 0; tile < tiles; ++tile) {
    const size_t first = part_start(in_width_, tiles, tile);
    before_.run_padded(panel, {.rows = part_start(in_width_, tiles, tile + 1) - first,
                               .in = from + first * depth,
                               .in_stride = depth,
                               .out = to + first * columns,
                               .out_stride = columns,
                               .index = tile,
                               .tiles = tiles});
  }
}

void DepthwiseStep::convolve_row(size_t y, size_t panel, const float* ring, float* out) const {
  const size_t columns = kernels_.columns;
  const Window& w = nodes_.window;
  DepthwiseRow row{.rows = {},
                   .step = w.stride[1] * columns,
                   .weights = weights_.data() + panel * (kDepthwiseTaps + 1) * columns,
                   .count = out_width_,
                   .out = out,
                   .out_stride = panels_ * columns,
                   .min = nodes_.min,
                   .max = nodes_.max};
  for (size_t i = 0; i < kDepthwiseSide; ++i) {
    row.rows[i] = ring + (y * w.stride[0] + i) % ring_rows_ * row_floats();
  }
  kernels_.depthwise(row);
}

void DepthwiseStep::project(size_t first_pixel, size_t pixels, const float* in) const {
  const size_t columns = after_.columns();
  const size_t stride = panels_ * kernels_.columns;
  const size_t tiles = divide_up(pixels, kernels_.rows);
  for (size_t panel = 0; panel < after_.panels(); ++panel) {
    for (size_t tile = 0; tile < tiles; ++tile) {
      const size_t first = part_start(pixels, tiles, tile);
      const size_t at = (first_pixel + first) * columns;
      after_.run(panel, {.rows = part_start(pixels, tiles, tile + 1) - first,
                         .in = in + first * stride,
                         .in_stride = stride,
                         .out = output_ + at,
                         .out_stride = columns,
                         .residual = residual_ == nullptr ? nullptr : residual_ + at,
                         .index = tile,
                         .tiles = tiles});
    }
  }
}

void DepthwiseStep::run_band(size_t image, size_t from, size_t to, float* scratch) const {
  const size_t columns = kernels_.columns;
  const size_t depth = nodes_.before ? before_.depth() : channels_;
  const float* in = input_ + image * in_height_ * in_width_ * depth;
  float* results = scratch + panels_ * ring_floats();
  const size_t stride = nodes_.window.stride[0];
  size_t filled = from * stride;
  for (size_t row = from; row < to; row += group_rows_) {
    const size_t end = std::min(row + group_rows_, to);
    const size_t needed = (end - 1) * stride + kDepthwiseSide;
    for (size_t panel = 0; panel < panels_; ++panel) {
      float* ring = scratch + panel * ring_floats();
      for (size_t y = filled; y < needed; ++y) fill_row(in, y, panel, ring);
      for (size_t y = row; y < end; ++y) {
        float* out = results + ((y - row) * out_width_ * panels_ + panel) * columns;
        convolve_row(y, panel, ring, out);
      }
    }
    filled = needed;
    project((image * out_height_ + row) * out_width_, (end - row) * out_width_, results);
  }
}

Status DepthwiseStep::run() {
  parallel_for(threads_, images_ * bands_, [&](size_t item, size_t thread) {
    const size_t band = item % bands_;
    run_band(item / bands_, part_start(out_height_, bands_, band),
             part_start(out_height_, bands_, band + 1), scratch_ + thread * thread_floats());
  });
  return {};
}

}  // namespace edgewise::xnnpack
