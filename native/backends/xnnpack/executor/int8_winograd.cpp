#include "backends/xnnpack/executor/int8_winograd.h"

#include <algorithm>

namespace edgewise::xnnpack {
namespace {

constexpr size_t kPositions = Int8WinogradKernels::kPositions;
constexpr size_t kTaps = 3;
constexpr size_t kLeastChannels = 32;
// Of transformed weights: more would show in a process's memory.
constexpr size_t kMostBytes = size_t{4} << 20;
// What a block's transformed input and products may take of a core's cache.
constexpr size_t kBlockBytes = 256 * 1024;
constexpr size_t kMostColumns = 64;
// Positions begin in different sets of the cache.
constexpr size_t kSkew = 32;

// Twice F(2x2, 3x3)'s.
constexpr int kFilter[Int8WinogradKernels::kIn][kTaps] = {
    {2, 0, 0}, {1, 1, 1}, {1, -1, 1}, {0, 0, 2}};

// `taps`: of one weight, `stride` elements apart.
int16_t transformed(const int8_t* taps, size_t stride, size_t position) {
  const int* vertical = kFilter[position / Int8WinogradKernels::kIn];
  const int* horizontal = kFilter[position % Int8WinogradKernels::kIn];
  int sum = 0;
  for (size_t i = 0; i < kTaps * kTaps; ++i) {
    sum += vertical[i / kTaps] * horizontal[i % kTaps] * taps[i * stride];
  }
  return static_cast<int16_t>(sum);
}

}  // namespace

const char* int8_winograd_rule(const Graph& graph, const std::vector<Shape>& shapes,
                               const GraphNode& node) {
  if (!suits_winograd(node)) return kWinogradNodeRule;
  if (!has_int8_channels(graph, node, 0)) return kInt8ChannelsRule;
  const size_t ins = node.window.group_inputs, outs = node.window.group_outputs;
  if (ins < kLeastChannels || outs < kLeastChannels || (ins | outs) % kInt8Columns != 0 ||
      ins > Int8WinogradKernels::kMostChannels) {
    return "multiples of 16 channels, 32 or more";
  }
  if (kPositions * ins * outs * sizeof(int16_t) > kMostBytes) {
    return "transformed weights of 4 MiB or less";
  }
  const Shape& out = shapes[node.outputs[0]];
  const size_t tiles = winograd_tiles(out, Int8WinogradKernels::kOut);
  if (tiles * kPositions * 3 > out[0] * out[1] * out[2] * kTaps * kTaps * 2) {
    return "tiles of 2x2 results that save a third of all products";
  }
  return nullptr;
}

Int8Winograd::Int8Winograd(const Graph& graph, const GraphNode& node,
                           const Int8WinogradKernels& kernels, ProgramState& state)
    : FusedKernelOf("Int8Winograd", kernels, state, {node.inputs[0]}, {node.outputs[0]}),
      in_channels_(node.window.group_inputs),
      channels_(graph, node, 0),
      padding_(in_channels_, channels_.zero),
      tiles_(Int8WinogradKernels::kOut, Int8WinogradKernels::kIn, node.window) {}

Result<std::unique_ptr<Step>> Int8Winograd::make(const Graph& graph, const GraphNode& node,
                                                 const Int8WinogradKernels& kernels,
                                                 ProgramState& state) {
  std::unique_ptr<Int8Winograd> step(new Int8Winograd(graph, node, kernels, state));
  const size_t ins = step->in_channels_, outs = step->channels_.count;
  const std::string form = weights_form("int8 winograd", kernels.name, {ins, outs});
  auto weights = FusedKernelWeights::make(
      graph, node.inputs[1], kNone, kPositions * ins * outs * sizeof(int16_t) / sizeof(float), form,
      state, [&](const float* filter_data, const float*, float* packed) {
        const auto* filter = reinterpret_cast<const int8_t*>(filter_data);
        parallel_for(state.threadpool(), kPositions, [&](size_t position, size_t) {
          int16_t* matrix = reinterpret_cast<int16_t*>(packed) + position * ins * outs;
          for (size_t out = 0; out < outs; ++out) {
            int16_t* to = matrix + out / kInt8Columns * kInt8Columns * ins +
                          out % kInt8Columns * kernels.step;
            for (size_t in = 0; in < ins; ++in) {
              to[in / kernels.step * kernels.step * kInt8Columns + in % kernels.step] =
                  transformed(filter + out * kTaps * kTaps * ins + in, ins, position);
            }
          }
        });
      });
  if (!weights.ok()) return weights.status();
  step->weights_ = std::move(*weights);
  return std::unique_ptr<Step>(std::move(step));
}

size_t Int8Winograd::columns() const { return std::min(channels_.count, kMostColumns); }

size_t Int8Winograd::input_stride() const { return tiles_of_block() * in_channels_ + kSkew; }

size_t Int8Winograd::output_stride() const { return tiles_of_block() * columns() + kSkew; }

Status Int8Winograd::reshape(const std::vector<Shape>& shapes) {
  tiles_.reshape(shapes[reads()[0]], shapes[writes()[0]]);
  const size_t tile_bytes =
      kPositions * (in_channels_ * sizeof(int16_t) + columns() * sizeof(int32_t));
  const size_t most = std::max(kBlockBytes / tile_bytes, kernels_.rows);
  const size_t threads = threads_of(threads_), count = tiles_.count();
  blocks_ =
      std::max(size_t{1}, std::min(count, divide_up(divide_up(count, most), threads) * threads));
  return {};
}

size_t Int8Winograd::thread_scratch_bytes() const {
  return kPositions * (input_stride() * sizeof(int16_t) + output_stride() * sizeof(int32_t));
}

Status Int8Winograd::set_pointers(std::span<void* const> addresses, const Scratch& scratch) {
  input_ = static_cast<const int8_t*>(addresses[reads()[0]]);
  output_ = static_cast<int8_t*>(addresses[writes()[0]]);
  scratch_ = scratch;
  return {};
}

void Int8Winograd::run_block(size_t block, int16_t* in) const {
  const size_t first = part_start(tiles_.count(), blocks_, block);
  const size_t count = part_start(tiles_.count(), blocks_, block + 1) - first;
  auto* out = reinterpret_cast<int32_t*>(in + kPositions * input_stride());
  for (size_t i = 0; i < count; ++i) {
    const int8_t* pixels[kPositions];
    tiles_.pixels(first + i, input_, in_channels_, padding_.data(), pixels);
    kernels_.transform_input(pixels, in_channels_, in + i * in_channels_, input_stride());
  }
  const auto* weights = reinterpret_cast<const int16_t*>(weights_.data());
  const size_t outs = channels_.count;
  for (size_t from = 0; from < outs; from += columns()) {
    const size_t to = std::min(from + columns(), outs);
    for (size_t position = 0; position < kPositions; ++position) {
      for (size_t column = from; column < to; column += kInt8Columns) {
        kernels_.multiply({.rows = count,
                           .depth = in_channels_,
                           .a = in + position * input_stride(),
                           .a_stride = in_channels_,
                           .panel = weights + (position * outs + column) * in_channels_,
                           .c = out + position * output_stride() + column - from,
                           .c_stride = columns()});
      }
    }
    for (size_t i = 0; i < count; ++i) {
      int8_t* results[Int8WinogradKernels::kOut * Int8WinogradKernels::kOut];
      tiles_.results(first + i, output_ + from, outs, results);
      kernels_.finish(out + i * columns(), output_stride(), to - from, channels_.bias.data() + from,
                      channels_.scales.data() + from, channels_.range, results);
    }
  }
}

Status Int8Winograd::run() {
  if (tiles_.count() == 0) return {};
  parallel_for(threads_, blocks_, [&](size_t block, size_t thread) {
    run_block(block, scratch_.of_thread<int16_t>(thread));
  });
  return {};
}

}  // namespace edgewise::xnnpack
