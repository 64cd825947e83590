#include "backends/xnnpack/describe_weights.h"

#include <limits>
#include <type_traits>

namespace edgewise::xnnpack {
namespace {

// Scales that are not from named data are copied into the key; not if they are many.
constexpr size_t kMaxCopiedScales = 16 * 1024;

template <typename T>
void append(std::string* text, const T& number) {
  static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_pointer_v<T>);
  text->append(reinterpret_cast<const char*>(&number), sizeof(number));
}

template <typename T>
void append_list(std::string* text, const std::vector<T>& list) {
  append(text, list.size());
  text->append(reinterpret_cast<const char*>(list.data()), list.size() * sizeof(T));
}

// Type, shape and quantization; false if these cannot be part of a key.
bool append_value(std::string* text, const GraphValue& value, const Shape& shape, bool is_weight,
                  const PackedWeights& weights) {
  append(text, value.type);
  append(text, value.stored);
  append(text, value.scale);
  append(text, value.zero_point);
  append(text, value.channel_dim);
  append(text, value.block_size);
  const std::string scales = scales_text(value, weights);
  if (scales.empty()) return false;
  *text += scales;
  if (!is_weight) return true;
  append(text, shape.rank);
  for (size_t i = 0; i < shape.rank; ++i) append(text, shape[i]);
  return value.data.is_named || weights.is_kept();
}

std::string describe(const Graph& graph, const std::vector<Shape>& shapes, const GraphNode& node,
                     const PackedWeights& weights) {
  std::string text;
  append(&text, node.kind);
  append(&text, node.flags);
  for (uint32_t number :
       {node.window.groups, node.window.group_inputs, node.window.group_outputs,
        node.window.kernel[0], node.window.kernel[1], node.window.stride[0], node.window.stride[1],
        node.window.dilation[0], node.window.dilation[1],
        // Whether there is padding chooses between kernels.
        node.window.pad_top, node.window.pad_right, node.window.pad_bottom, node.window.pad_left}) {
    append(&text, number);
  }
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const uint32_t input = node.inputs[i];
    append(&text, input == kNone);
    if (input == kNone) continue;
    if (!append_value(&text, graph.values[input], shapes[input], i > 0, weights)) return {};
  }
  const uint32_t output = node.outputs[0];
  // Not its bounds: they choose between kernels, but all of these read the same packing.
  append_value(&text, graph.values[output], shapes[output], false, weights);
  return text;
}

uint64_t padded(uint64_t count, uint64_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

// More bytes than XNNPACK packs a node's weights into, whatever its kernel. They work on up to 128
// output channels at once and 32 numbers of the input, and keep a bias, sums and scales by output
// channel and tap.
size_t most_packed(const GraphNode& node, const Shape& filter) {
  constexpr uint64_t kMostColumns = 128, kMostDepth = 32, kMostBesides = 128;
  uint64_t groups = 1, taps = 1, in, out;
  if (node.is_convolution()) {
    const Window& w = node.window;
    groups = w.groups;
    taps = uint64_t{w.kernel[0]} * w.kernel[1];
    in = w.group_inputs;
    out = w.group_outputs;
  } else {
    const bool is_transposed = (node.flags & XNN_FLAG_TRANSPOSE_WEIGHTS) != 0;
    in = is_transposed ? filter[0] : filter.elements() / filter[0];
    out = filter.elements() / in;
  }
  const uint64_t column = (taps + 1) * (padded(in, kMostDepth) * sizeof(float) + kMostBesides);
  const uint64_t columns = groups * padded(out, kMostColumns);
  constexpr uint64_t kMost = std::numeric_limits<size_t>::max() / 16;
  return columns > kMost / column ? 0 : static_cast<size_t>(columns * column);
}

}  // namespace

std::string scales_text(const GraphValue& value, const PackedWeights& weights) {
  std::string text;
  append(&text, value.channel_scales.size());
  append(&text, value.block_scales.size());
  if (value.scale_source) {
    const std::string name = weights.name_of(value.scale_source.bytes.data());
    return name.empty() ? name : text + name;
  }
  if (value.channel_scales.size() + value.block_scales.size() > kMaxCopiedScales) return {};
  append_list(&text, value.channel_scales);
  append_list(&text, value.block_scales);
  return text;
}

void describe_weights(const Graph& graph, const std::vector<Shape>& shapes, const GraphNode& node,
                      const std::vector<const void*>& constants, WeightsCache* cache) {
  if (!node.is_convolution() && node.kind != NodeKind::kFullyConnected) return;
  if (constants[1] == nullptr) return;
  cache->describe(describe(graph, shapes, node, cache->shared()),
                  most_packed(node, shapes[node.inputs[1]]));
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    if (node.inputs[i] == kNone) continue;
    cache->stands_for(constants[i], graph.values[node.inputs[i]].data.bytes.data());
  }
}

}  // namespace edgewise::xnnpack
