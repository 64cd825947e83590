#include "backends/xnnpack/executor/fused_winograd.h"

#include <algorithm>

#include "backends/xnnpack/executor/panels.h"
#include "backends/xnnpack/executor/parallel.h"

namespace edgewise::xnnpack {
namespace {

constexpr size_t kTaps = WinogradKernels::kTaps;
// Of a convolution that is worth it; of work, multiplications without the transforms. Below, it is
// up to twice as slow as XNNPACK (one tile), or hardly faster.
constexpr size_t kLeastChannels = 32;
constexpr size_t kLeastTiles = 4;
constexpr size_t kLeastWork = size_t{1} << 22;
// Of weights for large tiles: more would show in a process's memory.
constexpr size_t kMostLargeBytes = size_t{4} << 20;
// What a block's transformed input and products may take of a core's cache.
constexpr size_t kBlockBytes = 832 * 1024;
// Positions begin in different sets of the cache.
constexpr size_t kSkew = 16;

size_t filter_size(const Window& window) {
  return kTaps * kTaps * size_t{window.group_inputs} * window.group_outputs;
}

// Whether reading the weights is what takes time.
bool are_few(const FloatKernels& kernels, size_t tiles) { return tiles <= 2 * kernels.rows; }

// Large tiles, of which the weights are 4 times the filter instead of 16/9.
const WinogradKernels& choose_tiles(const FloatKernels& kernels, const Window& window,
                                    const Shape& out) {
  const WinogradKernels &small = kernels.small_winograd, &large = kernels.large_winograd;
  const size_t tiles = winograd_tiles(out, large.out);
  const bool is_less =
      tiles * large.positions() < winograd_tiles(out, small.out) * small.positions();
  const size_t bytes = large.positions() * window.group_inputs *
                       padded_columns(kernels, window.group_outputs) * sizeof(float);
  return is_less && bytes <= kMostLargeBytes && !are_few(kernels, tiles) ? large : small;
}

// `filter`: out_channels x 3 x 3 x in_channels. `matrix` gets in_channels x out_channels of one
// position.
void transform_weights(const WinogradKernels& winograd, const float* filter, size_t in_channels,
                       size_t out_channels, size_t position, float* matrix) {
  const double* vertical = winograd.filter[position / winograd.in];
  const double* horizontal = winograd.filter[position % winograd.in];
  for (size_t out = 0; out < out_channels; ++out) {
    for (size_t in = 0; in < in_channels; ++in) {
      const float* taps = filter + out * kTaps * kTaps * in_channels + in;
      double sum = 0;
      for (size_t i = 0; i < kTaps; ++i) {
        for (size_t j = 0; j < kTaps; ++j) {
          sum += vertical[i] * horizontal[j] *
                 static_cast<double>(taps[(i * kTaps + j) * in_channels]);
        }
      }
      matrix[out * in_channels + in] = static_cast<float>(sum);
    }
  }
}

}  // namespace

const char* winograd_rule(const Graph& graph, const std::vector<Shape>& shapes,
                          const LinearNodes& nodes) {
  const GraphNode& node = graph.nodes[nodes.nodes[0]];
  if (!suits_winograd(node)) return kWinogradNodeRule;
  const Window& w = node.window;
  const Shape& out = shapes[nodes.output];
  const size_t pixels = out[0] * out[1] * out[2];
  const size_t tiles = winograd_tiles(out, 2);
  if (w.group_inputs < kLeastChannels || w.group_outputs < kLeastChannels) {
    return "32 channels or more, before and after";
  }
  if (tiles < kLeastTiles || pixels * filter_size(w) < kLeastWork) {
    return "4 tiles of 2x2 results and 4 million products or more";
  }
  return nullptr;
}

Result<std::unique_ptr<Step>> FusedWinograd::make(const Graph& graph, const LinearNodes& nodes,
                                                  const FloatKernels& kernels,
                                                  ProgramState& state) {
  const Window& window = graph.nodes[nodes.nodes[0]].window;
  const WinogradKernels& winograd = choose_tiles(kernels, window, graph.values[nodes.output].shape);
  std::unique_ptr<FusedWinograd> step(new FusedWinograd(nodes, window, kernels, winograd, state));
  const size_t in_channels = step->in_channels_, out_channels = step->out_channels_;
  const size_t positions = step->winograd_.positions();
  const size_t packed_size = step->packed_floats();
  const size_t position_size = packed_size / positions;
  const std::string form =
      weights_form("winograd", kernels.name, {step->winograd_.out, in_channels, out_channels});
  auto weights = FusedKernelWeights::make(
      graph, nodes.filter, nodes.bias, packed_size + in_channels + out_channels, form, state,
      [&](const float* filter, const float* bias, float* packed) {
        parallel_for(state.threadpool(), positions, [&](size_t i, size_t) {
          std::vector<float> matrix(in_channels * out_channels);
          transform_weights(step->winograd_, filter, in_channels, out_channels, i, matrix.data());
          pack_panels(kernels, matrix.data(), in_channels, out_channels, 1, in_channels,
                      packed + i * position_size, nullptr);
        });
        float* end = packed + packed_size;
        std::fill_n(end, in_channels + out_channels, 0.0f);
        if (bias != nullptr) std::copy_n(bias, out_channels, end + in_channels);
      });
  if (!weights.ok()) return weights.status();
  step->weights_ = std::move(*weights);
  return std::unique_ptr<Step>(std::move(step));
}

size_t FusedWinograd::packed_floats() const {
  return winograd_.positions() * in_channels_ * padded_columns(kernels_, out_channels_);
}

size_t FusedWinograd::input_stride() const {
  return divide_up(tiles_.count(), blocks_) * in_channels_ + kSkew;
}

size_t FusedWinograd::output_stride() const {
  return divide_up(tiles_.count(), blocks_) * padded_columns(kernels_, out_channels_) + kSkew;
}

Status FusedWinograd::reshape(const std::vector<Shape>& shapes) {
  tiles_.reshape(shapes[nodes_.input], shapes[nodes_.output]);
  const size_t tiles = tiles_.count();
  const size_t tile_bytes = winograd_.positions() *
                            (in_channels_ + padded_columns(kernels_, out_channels_)) *
                            sizeof(float);
  const size_t most = std::max(kBlockBytes / tile_bytes, kernels_.rows);
  const size_t threads = threads_of(threads_);
  blocks_ = std::min(tiles, divide_up(divide_up(tiles, most), threads) * threads);
  column_parts_ = 1;
  // Each thread reads a part of the weights.
  if (are_few(kernels_, tiles)) {
    blocks_ = 1;
    column_parts_ = std::min(threads, divide_up(out_channels_, kernels_.columns));
  }
  return {};
}

size_t FusedWinograd::thread_scratch_bytes() const {
  return winograd_.positions() * (input_stride() + output_stride()) * sizeof(float);
}

Status FusedWinograd::set_pointers(std::span<void* const> addresses, const Scratch& scratch) {
  input_ = static_cast<const float*>(addresses[nodes_.input]);
  output_ = static_cast<float*>(addresses[nodes_.output]);
  if (nodes_.residual != kNone) residual_ = static_cast<const float*>(addresses[nodes_.residual]);
  scratch_ = scratch;
  return {};
}

void FusedWinograd::transform_tile(size_t tile, float* out) const {
  const float* zeros = weights_.data() + packed_floats();
  const float* pixels[WinogradKernels::kMostIn * WinogradKernels::kMostIn];
  tiles_.pixels(tile, input_, in_channels_, zeros, pixels);
  winograd_.transform_input(pixels, in_channels_, out, input_stride());
}

void FusedWinograd::multiply(size_t tiles, size_t from, size_t to, const float* in,
                             float* out) const {
  const size_t padded = padded_columns(kernels_, out_channels_);
  const size_t rows = divide_up(tiles, kernels_.rows);
  const size_t panel_bytes = in_channels_ * kernels_.columns * sizeof(float);
  const size_t ahead_step = panel_bytes / (rows * in_channels_);
  for (size_t position = 0; position < winograd_.positions(); ++position) {
    for (size_t first = from; first < to; first += kernels_.columns) {
      const float* panel = weights_.data() + (position * padded + first) * in_channels_;
      kernels_.multiply({.rows = tiles,
                         .depth = in_channels_,
                         .a = in + position * input_stride(),
                         .a_stride = in_channels_,
                         .panel = panel,
                         .panel_stride = kernels_.columns,
                         .columns = std::min(kernels_.columns, out_channels_ - first),
                         .c = out + position * output_stride() + first,
                         .c_stride = padded,
                         .ahead = reinterpret_cast<const char*>(panel) + panel_bytes,
                         .ahead_step = ahead_step},
                        nullptr);
    }
  }
}

void FusedWinograd::finish_tile(size_t tile, size_t from, size_t to, const float* in) const {
  const float* bias = weights_.data() + packed_floats() + in_channels_;
  constexpr size_t kMost = WinogradKernels::kMostOut * WinogradKernels::kMostOut;
  float* pixels[kMost];
  const float* residual[kMost];
  tiles_.results(tile, output_ + from, out_channels_, pixels);
  if (residual_ != nullptr) tiles_.results(tile, residual_ + from, out_channels_, residual);
  winograd_.transform_output(in + from, output_stride(), std::min(to, out_channels_) - from,
                             bias + from, residual_ == nullptr ? nullptr : residual, nodes_.min,
                             nodes_.max, pixels);
}

void FusedWinograd::run_block(size_t block, size_t part, float* scratch) const {
  const size_t first = part_start(tiles_.count(), blocks_, block);
  const size_t count = part_start(tiles_.count(), blocks_, block + 1) - first;
  float* in = scratch;
  float* out = scratch + winograd_.positions() * input_stride();
  for (size_t i = 0; i < count; ++i) transform_tile(first + i, in + i * in_channels_);
  const size_t padded = padded_columns(kernels_, out_channels_);
  const size_t panels = padded / kernels_.columns;
  const size_t from = part_start(panels, column_parts_, part) * kernels_.columns;
  const size_t to = part_start(panels, column_parts_, part + 1) * kernels_.columns;
  multiply(count, from, to, in, out);
  for (size_t i = 0; i < count; ++i) finish_tile(first + i, from, to, out + i * padded);
}

Status FusedWinograd::run() {
  parallel_for(threads_, blocks_ * column_parts_, [&](size_t item, size_t thread) {
    run_block(item / column_parts_, item % column_parts_, scratch_.of_thread<float>(thread));
  });
  return {};
}

}  // namespace edgewise::xnnpack
