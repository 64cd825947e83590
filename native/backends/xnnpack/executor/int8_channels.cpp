#include "backends/xnnpack/executor/int8_channels.h"

#include <cstring>

#include "backends/xnnpack/executor/parallel.h"

namespace edgewise::xnnpack {

bool has_int8_channels(const Graph& graph, const GraphNode& node, uint32_t channel_dim) {
  const GraphValue& filter = graph.values[node.inputs[1]];
  return graph.values[node.inputs[0]].type == DataType::kQint8 &&
         filter.type == DataType::kQcint8 && filter.is_constant() &&
         graph.values[node.outputs[0]].type == DataType::kQint8 && node.flags == 0 &&
         filter.channel_dim == channel_dim;
}

Int8Range int8_range(const GraphNode& node, const GraphValue& out) {
  return {.zero_point = static_cast<int16_t>(out.zero_point),
          .min = quantized<int8_t>(node.min, out.scale, out.zero_point),
          .max = quantized<int8_t>(node.max, out.scale, out.zero_point)};
}

Int8Channels::Int8Channels(const Graph& graph, const GraphNode& node, int offset) {
  const GraphValue &in = graph.values[node.inputs[0]], &out = graph.values[node.outputs[0]];
  const GraphValue& filter = graph.values[node.inputs[1]];
  count = filter.shape[filter.channel_dim];
  zero = static_cast<int8_t>(in.zero_point);
  range = int8_range(node, out);
  bias.resize(round_up(count, 2 * kInt8Columns));
  scales.resize(bias.size());
  if (node.inputs[2] != kNone) {
    const Constant& data = graph.values[node.inputs[2]].data;
    std::memcpy(bias.data(), data.bytes.data(), count * sizeof(int32_t));
  }
  const auto* weights = reinterpret_cast<const int8_t*>(filter.data.bytes.data());
  const size_t each = filter.shape.elements() / count;
  const bool is_last = filter.channel_dim != 0;
  const size_t next_channel = is_last ? 1 : each, next_weight = is_last ? count : 1;
  for (size_t channel = 0; channel < count; ++channel) {
    uint32_t sum = 0;
    for (size_t i = 0; i < each; ++i) {
      sum += static_cast<uint32_t>(weights[channel * next_channel + i * next_weight]);
    }
    // Modulo 2^32, as XNNPACK's sums are.
    bias[channel] = static_cast<int32_t>(static_cast<uint32_t>(bias[channel]) -
                                         static_cast<uint32_t>(in.zero_point + offset) * sum);
    scales[channel] = in.scale * filter.channel_scales[channel] / out.scale;
  }
}

}  // namespace edgewise::xnnpack
