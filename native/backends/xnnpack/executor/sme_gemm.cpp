#include "backends/xnnpack/executor/sme_gemm.h"

#ifdef EDGEWISE_HAS_KLEIDIAI

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "backends/xnnpack/executor/int8_channels.h"
#include "backends/xnnpack/executor/packed_gemm.h"
#include "backends/xnnpack/executor/parallel.h"

namespace edgewise::xnnpack {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// With less of them most of a tile, of 16 by 16 at least, is computed for nothing. Not measured: no
// such CPU was at hand.
constexpr size_t kLeastRows = 8;
constexpr size_t kLeastColumns = 8;
constexpr size_t kLeastDepth = 8;

// Packed rows that are to stay in a cache while panels of weights pass by, and the most tiles of
// them: each panel is read once for so many.
constexpr size_t kBlockBytes = 512 * 1024;
constexpr size_t kMostTiles = 8;

// Channels whose biases and scales are in the name of packed weights.
constexpr size_t kMostNamedChannels = 4096;

// Of `columns`, from `first` on: numbers of `kBytes`.
template <size_t kBytes>
void pack_panel(const SmeKernels& kernels, const std::byte* from, size_t segments, size_t length,
                size_t columns, bool is_transposed, size_t first, std::byte* panel) {
  const size_t width = kernels.columns, step = kernels.step(), depth = segments * length;
  std::byte* weights = panel + width * kernels.bias_bytes;
  const size_t count = std::min(width, columns - first);
  for (size_t j = 0; j < count; ++j) {
    for (size_t k = 0; k < depth; ++k) {
      const size_t p = k / length * kernels.padded(length) + k % length;
      const size_t at = is_transposed ? k * columns + first + j : (first + j) * depth + k;
      std::memcpy(weights + ((p / step * width + j) * step + p % step) * kBytes, from + at * kBytes,
                  kBytes);
    }
  }
}

void pack_panel(const SmeKernels& kernels, const void* from, size_t segments, size_t length,
                size_t columns, bool is_transposed, size_t first, std::byte* panel) {
  const auto pack = kernels.number_bytes == 4   ? pack_panel<4>
                    : kernels.number_bytes == 2 ? pack_panel<2>
                                                : pack_panel<1>;
  pack(kernels, static_cast<const std::byte*>(from), segments, length, columns, is_transposed,
       first, panel);
}

// In float16; `data` is that of `value`. Else it is kept in `copy`.
const void* halves_of(const GraphValue& value, const void* data, std::vector<__fp16>* copy) {
  if (data == nullptr || value.type == DataType::kFp16) return data;
  const auto* floats = static_cast<const float*>(data);
  copy->assign(floats, floats + value.shape.elements());
  return copy->data();
}

template <typename T>
std::string bytes_of(const std::vector<T>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)};
}

}  // namespace

std::optional<LinearNodes> sme_nodes(const Graph& graph, const std::vector<Shape>& shapes,
                                     const Readers& readers, const std::vector<bool>& is_taken,
                                     size_t node) {
  const GraphNode& linear = graph.nodes[node];
  const DataType type = graph.values[linear.inputs[0]].type;
  if (sme_kernels(type) == nullptr) return {};
  if (type == DataType::kFp32) return linear_nodes(graph, shapes, readers, is_taken, node);
  // XNNPACK's convolutions of float16 have constants of float32.
  const auto is_float_constant = [&](uint32_t value) {
    const GraphValue& constant = graph.values[value];
    return constant.is_constant() &&
           (constant.type == DataType::kFp16 || constant.type == DataType::kFp32);
  };
  const uint32_t bias = linear.inputs[2], output = linear.outputs[0];
  const bool suits = type == DataType::kQint8 ? has_int8_channels(graph, linear, 0)
                                              : is_float_constant(linear.inputs[1]) &&
                                                    (bias == kNone || is_float_constant(bias)) &&
                                                    graph.values[output].type == type;
  if (!suits || graph.values[linear.inputs[0]].is_constant()) return {};
  return LinearNodes{.nodes = {node},
                     .input = linear.inputs[0],
                     .filter = linear.inputs[1],
                     .bias = bias,
                     .summed = output,
                     .output = output,
                     .min = linear.min,
                     .max = linear.max};
}

const char* sme_rule(const Graph& graph, const std::vector<Shape>& shapes,
                     const LinearNodes& nodes) {
  const GraphNode& node = graph.nodes[nodes.nodes[0]];
  const Window& w = node.window;
  if (node.kind == NodeKind::kConv2d) {
    if (node.flags != 0 || w.groups != 1 || w.dilation[0] != 1 || w.dilation[1] != 1) {
      return "a convolution without groups and dilation";
    }
  } else if (!is_gemm(node)) {
    return "a product of matrices";
  }
  const size_t columns = std::max<size_t>(shapes[nodes.output].last(), 1);
  const size_t rows = shapes[nodes.output].elements() / columns;
  const size_t depth = graph.values[nodes.filter].shape.elements() / columns;
  return rows < kLeastRows || columns < kLeastColumns || depth < kLeastDepth
             ? "8 rows, 8 columns and a depth of 8, or more"
             : nullptr;
}

SmeGemm::SmeGemm(const Graph& graph, const LinearNodes& nodes, const SmeKernels& kernels,
                 ProgramState& state)
    : FusedKernelOf(graph.nodes[nodes.nodes[0]].kind == NodeKind::kConv2d ? "Convolution" : "GEMM",
                    kernels, state, {nodes.input, nodes.residual}, {nodes.output}),
      nodes_(nodes),
      is_convolution_(graph.nodes[nodes.nodes[0]].kind == NodeKind::kConv2d),
      window_(is_convolution_ ? graph.nodes[nodes.nodes[0]].window : Window()),
      image_(window_) {}

Result<std::unique_ptr<Step>> SmeGemm::make(const Graph& graph, const LinearNodes& nodes,
                                            ProgramState& state) {
  const SmeKernels& kernels = *sme_kernels(graph.values[nodes.input].type);
  const GraphNode& node = graph.nodes[nodes.nodes[0]];
  std::unique_ptr<SmeGemm> step(new SmeGemm(graph, nodes, kernels, state));
  const GraphValue& filter = graph.values[nodes.filter];
  const bool is_transposed = (node.flags & XNN_FLAG_TRANSPOSE_WEIGHTS) != 0;
  const size_t depth = is_transposed ? filter.shape[0] : filter.shape.elements() / filter.shape[0];
  const size_t columns = filter.shape.elements() / depth;
  const size_t segments = step->window_.kernel[0], length = depth / segments;
  step->segments_ = segments;
  step->length_ = length;
  step->depth_ = segments * kernels.padded(length);
  step->columns_ = columns;
  const bool adds = nodes.residual != kNone;
  step->finish_ = {
      .min = adds ? -kInfinity : nodes.min, .max = adds ? kInfinity : nodes.max, .range = {}};

  std::string form = weights_form("sme gemm", kernels.name.c_str(),
                                  {segments, length, columns, size_t{is_transposed}});
  // Of 8-bit integers biases and scales depend on the input's and output's.
  std::optional<Int8Channels> channels;
  if (kernels.has_scales) {
    channels.emplace(graph, node, 0);
    step->finish_.range = channels->range;
    step->zero_ = channels->zero;
    form = columns > kMostNamedChannels
               ? ""
               : form + bytes_of(channels->bias) + bytes_of(channels->scales);
  }
  const size_t panel_bytes = kernels.panel_bytes(step->depth_);
  auto weights = FusedKernelWeights::make(
      graph, nodes.filter, channels ? kNone : nodes.bias,
      step->panels() * panel_bytes / sizeof(float), form, state,
      [&](const float* filter_data, const float* bias_data, float* packed) {
        const void* from = filter_data;
        const void* bias = bias_data;
        std::vector<__fp16> halves[2];
        if (channels) bias = channels->bias.data();
        if (kernels.type == DataType::kFp16) {
          from = halves_of(filter, from, &halves[0]);
          if (bias != nullptr) bias = halves_of(graph.values[nodes.bias], bias, &halves[1]);
        }
        parallel_for(state.threadpool(), step->panels(), [&](size_t index, size_t) {
          const size_t first = index * kernels.columns;
          const size_t count = std::min(kernels.columns, columns - first);
          std::byte* panel = reinterpret_cast<std::byte*>(packed) + index * panel_bytes;
          std::memset(panel, 0, panel_bytes);
          if (bias != nullptr) {
            std::memcpy(panel, static_cast<const std::byte*>(bias) + first * kernels.bias_bytes,
                        count * kernels.bias_bytes);
          }
          pack_panel(kernels, from, segments, length, columns, is_transposed, first, panel);
          if (channels) {
            std::memcpy(panel + panel_bytes - kernels.columns * sizeof(float),
                        channels->scales.data() + first, count * sizeof(float));
          }
        });
      });
  if (!weights.ok()) return weights.status();
  step->weights_ = std::move(*weights);
  return std::unique_ptr<Step>(std::move(step));
}

Status SmeGemm::reshape(const std::vector<Shape>& shapes) {
  const Shape &in = shapes[nodes_.input], &out = shapes[nodes_.output];
  if (is_convolution_) {
    image_.reshape(in, out, 0, false);
    images_ = in[0];
    image_rows_ = out[2];
    rows_ = out[1] * out[2];
    segment_stride_ = image_.row_size();
    row_stride_ = window_.stride[0] * image_.row_size();
    column_stride_ = window_.stride[1] * image_.channels();
  } else {
    rows_ = image_rows_ = out.elements() / columns_;
    column_stride_ = length_;
  }
  const size_t threads = threads_of(threads_), tiles = divide_up(rows_, kernels_.rows);
  const size_t cached = kBlockBytes / (kernels_.rows * depth_ * kernels_.number_bytes);
  const size_t together =
      std::clamp<size_t>(std::min(cached, tiles / (2 * threads)), 1, kMostTiles);
  const size_t blocks = std::max<size_t>(divide_up(tiles, together), 1);
  block_ = together * kernels_.rows;
  shares_ = std::min(panels(), divide_up(threads, blocks));
  return {};
}

size_t SmeGemm::panels() const { return divide_up(columns_, kernels_.columns); }

const std::byte* SmeGemm::panel(size_t index) const {
  return reinterpret_cast<const std::byte*>(weights_.data()) + index * kernels_.panel_bytes(depth_);
}

size_t SmeGemm::pointer_bytes() const {
  return round_up(block_ * segments_ * sizeof(void*), Scratch::kAlignment);
}

size_t SmeGemm::thread_scratch_bytes() const {
  return pointer_bytes() + block_ * depth_ * kernels_.number_bytes;
}

std::byte* SmeGemm::packed_of(size_t thread) const {
  return scratch_.of_thread<std::byte>(thread) + pointer_bytes();
}

Status SmeGemm::set_pointers(std::span<void* const> addresses, const Scratch& scratch) {
  input_ = static_cast<const std::byte*>(addresses[nodes_.input]);
  output_ = static_cast<std::byte*>(addresses[nodes_.output]);
  if (nodes_.residual != kNone) residual_ = static_cast<const float*>(addresses[nodes_.residual]);
  scratch_ = scratch;
  return {};
}

// With padding around it, if need be.
const std::byte* SmeGemm::read(const std::byte* image) const {
  const auto read_as = [&](auto zero) {
    using Number = decltype(zero);
    return reinterpret_cast<const std::byte*>(
        image_.read(reinterpret_cast<const Number*>(image), zero,
                    reinterpret_cast<Number*>(scratch_.shared), threads_));
  };
  if (kernels_.number_bytes == 4) return read_as(uint32_t{0});
  return kernels_.number_bytes == 2 ? read_as(uint16_t{0}) : read_as(zero_);
}

SmeRow SmeGemm::row_of(const std::byte* image, size_t row) const {
  const size_t at = row / image_rows_ * row_stride_ + row % image_rows_ * column_stride_;
  return {.in = image + at * kernels_.number_bytes,
          .segments = segments_,
          .segment_bytes = segment_stride_ * kernels_.number_bytes,
          .length = length_};
}

bool SmeGemm::is_row_finite(const SmeRow& row) const {
  for (size_t i = 0; i < row.segments; ++i) {
    if (!kernels_.is_finite(row.segment(i), row.length)) return false;
  }
  return true;
}

void SmeGemm::pack(const std::byte* image, size_t first, size_t count, size_t thread) const {
  const size_t tile = kernels_.rows;
  auto* pointers = scratch_.of_thread<const void*>(thread);
  for (size_t i = 0; i < count; ++i) {
    const SmeRow row = row_of(image, first + i);
    const void** to = pointers + i / tile * tile * segments_ + i % tile;
    for (size_t segment = 0; segment < segments_; ++segment) {
      to[segment * tile] = row.segment(segment);
    }
  }
  kernels_.pack(count, segments_, length_, pointers, packed_of(thread));
}

void SmeGemm::add_residual(size_t at, size_t rows, size_t columns) const {
  for (size_t i = 0; i < rows; ++i, at += columns_) {
    add_within(residual_ + at, columns, nodes_.min, nodes_.max,
               reinterpret_cast<float*>(output_) + at);
  }
}

void SmeGemm::run_block(const std::byte* image, size_t rows_before, size_t item,
                        size_t thread) const {
  const size_t share = item % shares_, first = item / shares_ * block_;
  const size_t count = std::min(block_, rows_ - first);
  const size_t from = part_start(panels(), shares_, share);
  const size_t end = part_start(panels(), shares_, share + 1);
  const size_t width = kernels_.columns;
  pack(image, first, count, thread);
  const std::byte* packed = packed_of(thread);
  std::vector<size_t> inexact;  // rows in which the kernel may have made a bound of NaN
  if (kernels_.is_finite != nullptr &&
      !kernels_.is_finite(packed, round_up(count, kernels_.rows) * depth_)) {
    for (size_t row = 0; row < count; ++row) {
      if (!is_row_finite(row_of(image, first + row))) inexact.push_back(row);
    }
  }
  for (size_t i = from; i < end; ++i) {
    const size_t at = (rows_before + first) * columns_ + i * width;
    const size_t columns = std::min(width, columns_ - i * width);
    kernels_.multiply(count, columns, depth_, packed, panel(i),
                      output_ + at * kernels_.number_bytes, columns_ * kernels_.number_bytes,
                      finish_);
    for (size_t row : inexact) {
      kernels_.multiply_row(row_of(image, first + row), panel(i), columns,
                            output_ + (at + row * columns_) * kernels_.number_bytes, finish_);
    }
    if (residual_ != nullptr) add_residual(at, count, columns);
  }
}

Status SmeGemm::run() {
  const size_t items = divide_up(rows_, block_) * shares_;
  for (size_t i = 0; i < images_; ++i) {
    const std::byte* image = input_;
    if (is_convolution_) image = read(input_ + i * image_.elements() * kernels_.number_bytes);
    parallel_for(threads_, items,
                 [&](size_t item, size_t thread) { run_block(image, i * rows_, item, thread); });
  }
  return {};
}

}  // namespace edgewise::xnnpack

#endif
