#include "backends/xnnpack/executor/int8_depthwise.h"

#include <algorithm>
#include <cstring>

namespace edgewise::xnnpack {
namespace {

// What rows of the image have that a thread goes through panel by panel, of a core's second cache.
constexpr size_t kSecondCache = 128 * 1024;

// The weights of kInt8Columns channels of which `from` is the first; `to` is all zeros.
void pack_panel(const int8_t* from, size_t channels, const Int8DepthwiseGroups& groups,
                bool swaps_fours, std::byte* to) {
  // Each weight has its part of the bytes that a group has for a channel.
  const size_t channel_bytes = Int8DepthwiseKernels::kGroupBytes / kInt8Columns;
  const size_t weight_bytes = channel_bytes / groups.together;
  for (size_t tap = 0; tap < groups.size * groups.size; ++tap, from += channels) {
    const auto [group, slot] = groups.place(tap / groups.size, tap % groups.size);
    std::byte* at = to + group * Int8DepthwiseKernels::kGroupBytes + slot * weight_bytes;
    for (size_t i = 0; i < kInt8Columns; ++i, at += channel_bytes) {
      // The bits of 4 and 8 change places.
      const size_t c = swaps_fours ? (i & 3) | (i & 4) << 1 | (i & 8) >> 1 : i;
      // Little-endian, as all CPUs that have such kernels.
      const int16_t weight = from[c];
      std::memcpy(at, &weight, weight_bytes);
    }
  }
}

}  // namespace

const char* int8_depthwise_rule(const Graph& graph, const GraphNode& node) {
  const Window& w = node.window;
  if (!has_int8_channels(graph, node, 3)) return kInt8ChannelsRule;
  const bool has_size = (w.kernel[0] == 3 || w.kernel[0] == 5) && w.kernel[1] == w.kernel[0];
  if (!has_size || w.dilation[0] != 1 || w.dilation[1] != 1 || w.group_outputs != 1) {
    return "3x3 or 5x5, no dilation, one result for each channel";
  }
  if (w.pad_left >= w.kernel[1]) return "padding of less than the window";
  return w.groups < kInt8Columns ? "as many channels as the kernel computes at once" : nullptr;
}

Int8Depthwise::Int8Depthwise(const Graph& graph, const GraphNode& node,
                             const Int8DepthwiseKernels& kernels, ProgramState& state)
    : FusedKernelOf("Int8Depthwise", kernels, state, {node.inputs[0]}, {node.outputs[0]}),
      window_(node.window),
      groups_{node.window.kernel[0], kernels.together},
      channels_(graph, node, kernels.offset) {}

size_t Int8Depthwise::first_channel(size_t panel) const {
  return std::min(panel * kInt8Columns, channels_.count - kInt8Columns);
}

Result<std::unique_ptr<Step>> Int8Depthwise::make(const Graph& graph, const GraphNode& node,
                                                  const Int8DepthwiseKernels& kernels,
                                                  ProgramState& state) {
  std::unique_ptr<Int8Depthwise> step(new Int8Depthwise(graph, node, kernels, state));
  const size_t channels = step->channels_.count, panels = step->panels(), size = step->size();
  const Int8DepthwiseGroups groups = step->groups_;
  const size_t panel_bytes = groups.all() * Int8DepthwiseKernels::kGroupBytes;
  const size_t bytes = panels * panel_bytes;
  const std::string form = weights_form("int8 depthwise", kernels.name, {size, channels});
  auto packed = FusedKernelWeights::make(
      graph, node.inputs[1], kNone, bytes / sizeof(float), form, state,
      [&](const float* filter_data, const float*, float* packed_data) {
        const auto* from = reinterpret_cast<const int8_t*>(filter_data);
        auto* to = reinterpret_cast<std::byte*>(packed_data);
        std::fill_n(to, bytes, std::byte{0});
        for (size_t panel = 0; panel < panels; ++panel, to += panel_bytes) {
          pack_panel(from + step->first_channel(panel), channels, groups, kernels.swaps_fours, to);
        }
      });
  if (!packed.ok()) return packed.status();
  step->weights_ = std::move(*packed);
  return std::unique_ptr<Step>(std::move(step));
}

Status Int8Depthwise::reshape(const std::vector<Shape>& shapes) {
  const Shape &in = shapes[reads()[0]], &out = shapes[writes()[0]];
  images_ = in[0];
  height_ = in[1];
  width_ = in[2];
  out_height_ = out[1];
  out_width_ = out[2];
  pixels_ = out_width_ == 0 ? 0 : (out_width_ - 1) * window_.stride[1] + size();
  return {};
}

size_t Int8Depthwise::row_bytes() const {
  return round_up((pixels_ + Int8DepthwiseRow::kSparePixels) * kInt8Columns, kCacheLine);
}

// The last row of a window, and what the kernel makes of all.
size_t Int8Depthwise::thread_scratch_bytes() const {
  return row_bytes() + pixels_ * groups_.of_pixel() * Int8DepthwiseKernels::kGroupBytes;
}

Status Int8Depthwise::set_pointers(std::span<void* const> addresses, const Scratch& scratch) {
  input_ = static_cast<const int8_t*>(addresses[reads()[0]]);
  output_ = static_cast<int8_t*>(addresses[writes()[0]]);
  scratch_ = scratch;
  return {};
}

// A row of the image with padding around; `step` as Int8DepthwiseRow has it.
void Int8Depthwise::copy_row(const int8_t* from, size_t step, size_t count, int8_t* to) const {
  const size_t after = pixels_ + Int8DepthwiseRow::kSparePixels - window_.pad_left - count;
  std::memset(to, channels_.zero, window_.pad_left * kInt8Columns);
  to += window_.pad_left * kInt8Columns;
  for (size_t x = 0; x < count; ++x, to += kInt8Columns, from += step) {
    std::memcpy(to, from, kInt8Columns);
  }
  std::memset(to, channels_.zero, after * kInt8Columns);
}

void Int8Depthwise::run_rows(size_t image, size_t panel, size_t first, size_t end,
                             std::byte* scratch) const {
  const size_t channel = first_channel(panel), channels = channels_.count;
  const int8_t* from = input_ + image * height_ * width_ * channels + channel;
  int8_t padding[kInt8Columns];
  std::memset(padding, channels_.zero, sizeof(padding));
  auto* const last = reinterpret_cast<int8_t*>(scratch);
  Int8DepthwiseRow row = {
      .rows = {},
      .steps = {},
      .before = window_.pad_left,
      .count = std::min(width_, pixels_ - window_.pad_left),
      .pixels = pixels_,
      .zero = channels_.zero,
      .last = last,
      .stride = window_.stride[1],
      .results = out_width_,
      .weights = reinterpret_cast<const std::byte*>(weights_.data()) +
                 panel * groups_.all() * Int8DepthwiseKernels::kGroupBytes,
      .bias = channels_.bias.data() + channel,
      .scales = channels_.scales.data() + channel,
      .c = output_ + (image * out_height_ + first) * out_width_ * channels + channel,
      .c_stride = channels,
      .scratch = scratch + row_bytes(),
  };
  for (size_t y = first; y < end; ++y, row.c += out_width_ * channels) {
    for (size_t i = 0; i < size(); ++i) {
      // Rows before the image wrap around to beyond it.
      const size_t in_y = y * window_.stride[0] + i - window_.pad_top;
      row.rows[i] = in_y < height_ ? from + in_y * width_ * channels : padding;
      row.steps[i] = in_y < height_ ? channels : 0;
    }
    if (groups_.has_last_row()) {
      copy_row(row.rows[size() - 1], row.steps[size() - 1], row.count, last);
    }
    (size() == 3 ? kernels_.run3 : kernels_.run5)(row, channels_.range);
  }
}

// Threads share blocks of rows, whose part of the image stays in a cache while panels go through
// it; if these are few, panels, too.
Status Int8Depthwise::run() {
  if (images_ * out_height_ * out_width_ == 0) return {};
  const size_t row = width_ * channels_.count * window_.stride[0];
  const size_t most = std::max<size_t>(kSecondCache / row, 2 * size());
  const size_t blocks = divide_up(out_height_, most);
  // A last panel that has channels of the one before is run with it.
  const size_t apart = panels() - (channels_.count % kInt8Columns != 0 ? 1 : 0);
  const size_t parts = parts_of_items(images_ * blocks, threads_of(threads_), apart);
  parallel_for(threads_, images_ * blocks * parts, [&](size_t item, size_t thread) {
    const size_t block = item / parts % blocks, part = item % parts;
    const size_t first = part_start(out_height_, blocks, block);
    const size_t end = part_start(out_height_, blocks, block + 1);
    const size_t last = part + 1 == parts ? panels() : part_start(apart, parts, part + 1);
    for (size_t panel = part_start(apart, parts, part); panel < last; ++panel) {
      run_rows(item / parts / blocks, panel, first, end, scratch_.of_thread<std::byte>(thread));
    }
  });
  return {};
}

}  // namespace edgewise::xnnpack
