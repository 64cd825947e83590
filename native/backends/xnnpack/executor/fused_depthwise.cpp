#include "backends/xnnpack/executor/fused_depthwise.h"

#include <algorithm>

#include "backends/xnnpack/executor/panels.h"
#include "backends/xnnpack/executor/parallel.h"

namespace edgewise::xnnpack {
namespace {

// A thread with fewer rows would compute too many of its neighbours' again. Results of the
// depthwise convolution up to this size stay in the caches until another loop reads them.
constexpr size_t kFewRows = 7;
constexpr size_t kCachedResults = 640 * 1024;
// Of a group of rows: enough for whole tiles of the GEMMs.
constexpr size_t kGroupPixels = 56;
// Of a band, as its neighbours compute some of its first GEMM's rows again.
constexpr size_t kBandRows = 7;
constexpr size_t kMostBands = 8;  // for each thread

size_t result_bytes(const Shape& results, const FloatKernels& kernels) {
  return results.elements() / results.last() * padded_columns(kernels, results.last()) *
         sizeof(float);
}

}  // namespace

const char* depthwise_rule(const std::vector<Shape>& shapes, const FloatKernels& kernels,
                           DepthwiseNodes* nodes) {
  const Shape& results = shapes[nodes->result];
  if (!kernels.depthwise_pays) return "cores that start instructions out of order";
  if (results.last() < kernels.lanes) return "channels that fill a vector";
  if (results[0] * results[1] < kFewRows) return "7 rows of results or more";
  if (kernels.is_narrow) {
    if (nodes->before && (nodes->is_wide || !kernels.gemm_pays)) {
      return "no convolution before it, which is run by itself";
    }
    if (!kernels.gemm_pays) nodes->leave_gemms();
  }
  if (!nodes->after) return nullptr;
  // Of both GEMMs.
  size_t weights = packed_bytes(kernels, results.last(), shapes[nodes->after->output].last());
  if (nodes->before) {
    weights +=
        packed_bytes(kernels, shapes[nodes->before->input].last(), shapes[nodes->input].last());
  }
  if (weights > kCachedWeights) {
    // By panels, each of which is read once, if the results in between stay in the caches.
    nodes->is_by_panel = nodes->before && result_bytes(results, kernels) <= kCachedResults;
    if (!nodes->is_by_panel) nodes->leave_gemms();
  }
  return nullptr;
}

Result<std::unique_ptr<Step>> FusedDepthwise::make(const Graph& graph, const DepthwiseNodes& nodes,
                                                   const FloatKernels& kernels,
                                                   ProgramState& state) {
  std::unique_ptr<FusedDepthwise> step(new FusedDepthwise(nodes, kernels, state));
  if (nodes.before) {
    auto before = PackedGemm::make(graph, *nodes.before, kernels, state);
    if (!before.ok()) return before.status();
    step->before_ = std::move(*before);
  }
  if (nodes.after) {
    auto after = PackedGemm::make(graph, *nodes.after, kernels, state);
    if (!after.ok()) return after.status();
    step->after_ = std::move(*after);
  }
  const size_t side = nodes.window.kernel[0];
  const size_t channels = graph.values[nodes.filter].shape.last();
  const size_t columns = kernels.columns;
  const size_t panels = padded_columns(kernels, channels) / columns;
  const std::string form = weights_form("depthwise", kernels.name, {side, channels});
  auto weights = FusedKernelWeights::make(
      graph, nodes.filter, nodes.bias, panels * (side * side + 1) * columns, form, state,
      [&](const float* filter, const float* bias, float* packed) {
        for (size_t panel = 0; panel < panels; ++panel) {
          const size_t first = panel * columns;
          const size_t count = std::min(columns, channels - first);
          for (size_t tap = 0; tap <= side * side; ++tap, packed += columns) {
            const float* from = tap == side * side ? bias : filter + tap * channels;
            std::fill_n(packed, columns, 0.0f);
            if (from != nullptr) std::copy_n(from + first, count, packed);
          }
        }
      });
  if (!weights.ok()) return weights.status();
  step->weights_ = std::move(*weights);
  step->side_ = side;
  step->channels_ = channels;
  step->panels_ = panels;
  step->pixel_floats_ = std::min(columns, divide_up(channels, kernels.lanes) * kernels.lanes);
  return std::unique_ptr<Step>(std::move(step));
}

Status FusedDepthwise::reshape(const std::vector<Shape>& shapes) {
  const Shape& source = shapes[nodes_.first_value()];
  const Shape& in = shapes[nodes_.input];
  const Shape& out = shapes[nodes_.result];
  source_elements_ = source[1] * source[2] * source[3];
  if (nodes_.is_wide) source_.reshape(source, in, 0, true);
  images_ = in[0];
  in_height_ = in[1];
  in_width_ = in[2];
  out_height_ = out[1];
  out_width_ = out[2];
  const size_t threads = threads_of(threads_);
  next_item_.resize(threads);
  const bool is_small =
      threads * kFewRows >= out_height_ * images_ && result_bytes(out, kernels_) <= kCachedResults;
  is_by_panel_ = nodes_.is_by_panel || (nodes_.before && (is_small || !nodes_.after));
  group_rows_ = 1;
  if (is_by_panel_) {
    const size_t items = panels_ * images_;
    const bool is_even = items % threads == 0 || items >= 4 * threads;
    bands_ = is_even ? 1 : std::min<size_t>(2, out_height_);
  } else {
    const size_t share = out_height_ * images_ / (threads * kBandRows);
    const size_t bands = threads * std::clamp<size_t>(share, 1, kMostBands);
    bands_ = threads == 1 ? 1 : std::min(divide_up(bands, images_), out_height_);
    if (nodes_.after) {
      group_rows_ =
          std::clamp<size_t>(kGroupPixels / out_width_, 1, divide_up(out_height_, bands_));
    }
  }
  const Window& w = nodes_.window;
  ring_rows_ = (group_rows_ - 1) * w.stride[0] + side_;
  const size_t read = (out_width_ - 1) * w.stride[1] + side_;
  row_floats_ = std::max(read, w.pad_left + in_width_) * pixel_floats_;
  return {};
}

size_t FusedDepthwise::result_stride() const {
  return nodes_.after ? panels_ * kernels_.columns : channels_;
}

size_t FusedDepthwise::ring_floats() const { return ring_rows_ * row_floats_; }

size_t FusedDepthwise::result_floats() const {
  if (!nodes_.after) return 0;
  return (is_by_panel_ ? images_ * out_height_ : group_rows_) * out_width_ * result_stride();
}

size_t FusedDepthwise::spare_floats() const {
  const size_t results = out_width_ * kernels_.columns;
  if (!nodes_.is_wide) return results;
  return std::max(results, nodes_.before_window.kernel[0] * source_.row_size());
}

size_t FusedDepthwise::thread_floats() const {
  return spare_floats() +
         (is_by_panel_ ? ring_floats() : panels_ * ring_floats() + result_floats());
}

size_t FusedDepthwise::scratch_bytes() const {
  return is_by_panel_ ? result_floats() * sizeof(float) : 0;
}

size_t FusedDepthwise::thread_scratch_bytes() const { return thread_floats() * sizeof(float); }

Status FusedDepthwise::set_pointers(std::span<void* const> addresses, const Scratch& scratch) {
  input_ = static_cast<const float*>(addresses[nodes_.first_value()]);
  output_ = static_cast<float*>(addresses[nodes_.last_value()]);
  if (nodes_.residual() != kNone) {
    residual_ = static_cast<const float*>(addresses[nodes_.residual()]);
  }
  scratch_ = scratch;
  return {};
}

const float* FusedDepthwise::image(size_t index) const { return input_ + index * source_elements_; }

Rows FusedDepthwise::after_rows(size_t first, size_t count, const float* results) const {
  const size_t at = first * after_.columns();
  return {.rows = count,
          .in = results,
          .in_stride = result_stride(),
          .out = output_ + at,
          .out_stride = after_.columns(),
          .residual = residual_ == nullptr ? nullptr : residual_ + at};
}

void FusedDepthwise::run_band(size_t index, size_t from, size_t to, bool goes_on,
                              float* scratch) const {
  const float* in = image(index);
  float* spare = scratch + panels_ * ring_floats();
  const size_t stride = nodes_.window.stride[0];
  const size_t row_results = out_width_ * result_stride();
  size_t filled = from * stride;
  if (goes_on) {
    filled = (from - 1) * stride + side_;
  } else {
    for (size_t panel = 0; panel < panels_; ++panel) clear_padding(scratch + panel * ring_floats());
  }
  for (size_t row = from; row < to; row += group_rows_) {
    const size_t end = std::min(row + group_rows_, to);
    const size_t needed = (end - 1) * stride + side_;
    const size_t first = index * out_height_ + row;
    float* results = nodes_.after ? spare + spare_floats() : output_ + first * row_results;
    for (size_t panel = 0; panel < panels_; ++panel) {
      float* ring = scratch + panel * ring_floats();
      for (size_t y = filled; y < needed; ++y) fill_row(in, y, panel, ring, spare);
      for (size_t y = row; y < end; ++y) {
        convolve_row(y, panel, ring, results + (y - row) * row_results, spare);
      }
    }
    filled = needed;
    if (!nodes_.after) continue;
    after_.run_all(nullptr, after_rows(first * out_width_, (end - row) * out_width_, results));
  }
}

void FusedDepthwise::run_panel(size_t panel, size_t index, size_t from, size_t to,
                               float* scratch) const {
  const float* in = image(index);
  const size_t stride = nodes_.window.stride[0];
  const size_t row_results = out_width_ * result_stride();
  float* results = (nodes_.after ? shared_results() : output_) + index * out_height_ * row_results;
  float* ring = scratch;
  float* spare = ring + ring_floats();
  size_t filled = from * stride;
  clear_padding(ring);
  for (size_t row = from; row < to; ++row) {
    const size_t needed = row * stride + side_;
    for (; filled < needed; ++filled) fill_row(in, filled, panel, ring, spare);
    convolve_row(row, panel, ring, results + row * row_results, spare);
  }
}

Status FusedDepthwise::run() {
  const size_t panels = is_by_panel_ ? panels_ : 1;
  std::fill(next_item_.begin(), next_item_.end(), 0);
  parallel_for(threads_, images_ * bands_ * panels, [&](size_t item, size_t thread) {
    const size_t band = item % bands_, image = item / bands_ % images_;
    const size_t from = part_start(out_height_, bands_, band);
    const size_t to = part_start(out_height_, bands_, band + 1);
    float* own = scratch_.of_thread<float>(thread);
    if (is_by_panel_) {
      run_panel(item / bands_ / images_, image, from, to, own);
    } else {
      run_band(image, from, to, band != 0 && next_item_[thread] == item, own);
      next_item_[thread] = item + 1;
    }
  });
  if (is_by_panel_ && nodes_.after) {
    after_.run_all(threads_, after_rows(0, images_ * out_height_ * out_width_, shared_results()));
  }
  return {};
}

}  // namespace edgewise::xnnpack
