#include "backends/xnnpack/build.h"
#include "backends/xnnpack/xnn_error.h"

namespace edgewise::xnnpack {
namespace {

xnn_status define_value(const GraphValue& value, const Shape& shape, const void* data,
                        xnn_subgraph_t subgraph, uint32_t* id) {
  const xnn_datatype type = to_xnn(value.type);
  const size_t* dims = shape.dims.data();
  uint32_t flags = 0;
  if (value.is_input) flags = XNN_VALUE_FLAG_EXTERNAL_INPUT;
  if (value.is_output) flags = XNN_VALUE_FLAG_EXTERNAL_OUTPUT;
  switch (value.type) {
    case DataType::kQint8:
    case DataType::kQuint8:
    case DataType::kQint32:
      return xnn_define_quantized_tensor_value(subgraph, type, value.zero_point, value.scale,
                                               shape.rank, dims, data, value.external_id, flags,
                                               id);
    case DataType::kQcint8:
    case DataType::kQcint32:
    case DataType::kQcint4:
      return xnn_define_channelwise_quantized_tensor_value_v2(
          subgraph, type, value.zero_point, value.channel_scales.data(), shape.rank,
          value.channel_dim, dims, data, value.external_id, flags, id);
    case DataType::kQbint4:
      return xnn_define_blockwise_quantized_tensor_value(
          subgraph, type, value.zero_point, value.block_scales.data(), shape.rank,
          value.channel_dim, value.block_size, dims, data, value.external_id, flags, id);
    case DataType::kQdint8:
      return xnn_define_dynamically_quantized_tensor_value(
          subgraph, type, shape.rank, value.nonbatch_dims, dims, value.external_id, flags, id);
    default:
      return xnn_define_tensor_value(subgraph, type, shape.rank, dims, data, value.external_id,
                                     flags, id);
  }
}

// Out of memory is told as such.
Status check_value(xnn_status status, const GraphValue& value, const Shape& shape) {
  const std::string what = "value " + std::to_string(value.serialized_id) + ", " +
                           name_of(value.type) + shape.text() + ",";
  return check_xnn(status, what.c_str());
}

}  // namespace

Status define_values(const Graph& graph, const std::vector<Shape>& shapes,
                     const std::vector<const void*>& data, xnn_subgraph_t subgraph, XnnIds* ids) {
  std::vector<bool> is_used(graph.values.size());
  for (const GraphNode& node : graph.nodes) {
    for (uint32_t input : node.inputs) {
      if (input != kNone) is_used[input] = true;
    }
    for (uint32_t output : node.outputs) is_used[output] = true;
  }
  ids->assign(graph.values.size(), kNone);
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const GraphValue& value = graph.values[i];
    if (!is_used[i] && !value.is_external()) continue;
    EDGEWISE_RETURN_IF_ERROR(check_value(
        define_value(value, shapes[i], data[i], subgraph, &(*ids)[i]), value, shapes[i]));
  }
  return {};
}

}  // namespace edgewise::xnnpack
