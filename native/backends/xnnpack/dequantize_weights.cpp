#include "backends/xnnpack/dequantize_weights.h"

#include <utility>

namespace edgewise::xnnpack {
namespace {

bool has_kernel(const GraphNode& node, DataType input, DataType filter) {
  return node.kind == NodeKind::kFullyConnected && input == DataType::kFp32 &&
         is_per_channel(filter);
}

float scale_of(const GraphValue& value, size_t row, size_t column, size_t channel) {
  if (value.block_size == 0) return value.channel_scales[channel];
  const size_t blocks = value.shape.last() / value.block_size;
  const size_t block = row * blocks + column / value.block_size;
  if (value.stored == DataType::kQbint8) return value.channel_scales[block];
  return from_bfloat16(value.block_scales[block]);
}

// Rows of the last dimension; 4-bit numbers fill up the last byte of each.
float number_at(const GraphValue& value, size_t row, size_t column) {
  const std::byte* data = value.data.bytes.data();
  const size_t columns = value.shape.last();
  if (value.stored == DataType::kQcint8 || value.stored == DataType::kQbint8) {
    return static_cast<float>(static_cast<int8_t>(data[row * columns + column]));
  }
  const auto pair = std::to_integer<int32_t>(data[row * ((columns + 1) / 2) + column / 2]);
  const int32_t nibble = column % 2 == 0 ? pair & 0xf : pair >> 4;
  return static_cast<float>(nibble - value.zero_point);
}

}  // namespace

void dequantize_weights(Graph* graph) {
  std::vector<uint32_t> twins(graph->values.size(), kNone);
  for (GraphNode& node : graph->nodes) {
    if (!node.is_convolution() && node.kind != NodeKind::kFullyConnected) continue;
    uint32_t& filter = node.inputs[1];
    const DataType input = graph->values[node.inputs[0]].type;
    const DataType type = graph->values[filter].type;
    if (!is_float(input) || is_float(type) || has_kernel(node, input, type)) continue;
    if (twins[filter] == kNone) {
      twins[filter] = static_cast<uint32_t>(graph->values.size());
      GraphValue twin = graph->values[filter];
      twin.stored = std::exchange(twin.type, DataType::kFp32);
      graph->values.push_back(std::move(twin));
    }
    filter = twins[filter];
  }
}

Result<MemoryBlock> dequantized(const GraphValue& twin) {
  auto block = MemoryBlock::allocate(twin.shape.elements() * sizeof(float));
  if (!block.ok()) return block.status();
  auto* to = reinterpret_cast<float*>(block->data());
  const size_t columns = twin.shape.last();
  const size_t rows = twin.shape.elements() / columns;
  const bool along_columns = twin.channel_dim + 1 == twin.shape.rank;
  const size_t channels = twin.shape[twin.channel_dim];
  const size_t rows_of_channel = along_columns
                                     ? 1
                                     : twin.shape.leading(twin.shape.rank - 1) /
                                           twin.shape.leading(size_t{twin.channel_dim} + 1);
  for (size_t row = 0; row < rows; ++row) {
    for (size_t column = 0; column < columns; ++column) {
      const size_t channel = along_columns ? column : row / rows_of_channel % channels;
      *to++ = number_at(twin, row, column) * scale_of(twin, row, column, channel);
    }
  }
  return block;
}

}  // namespace edgewise::xnnpack
