#include "backends/xnnpack/graph.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

namespace edgewise::xnnpack {

bool GraphNode::is_convolution() const {
  return kind == NodeKind::kConv2d || kind == NodeKind::kDepthwiseConv2d ||
         kind == NodeKind::kConvTranspose2d;
}

bool Window::is_pointwise() const {
  return kernel[0] == 1 && kernel[1] == 1 && stride[0] == 1 && stride[1] == 1;
}

bool GraphNode::is_windowed() const {
  return is_convolution() || kind == NodeKind::kAvgPooling2d || kind == NodeKind::kMaxPooling2d ||
         kind == NodeKind::kArgMaxPooling2d;
}

bool GraphNode::is_bounded() const {
  return min > -std::numeric_limits<float>::infinity() ||
         max < std::numeric_limits<float>::infinity();
}

bool GraphNode::is_concatenation() const {
  return kind == NodeKind::kConcatenate2 || kind == NodeKind::kConcatenate3 ||
         kind == NodeKind::kConcatenate4 || kind == NodeKind::kConcatenate5;
}

void GraphNode::add_indices(std::vector<uint32_t>* indices) const {
  indices->push_back(index);
  indices->insert(indices->end(), fused.begin(), fused.end());
}

std::string GraphNode::text() const {
  return "node " + std::to_string(index) + " (" + name_of(kind) + ", debug handle " +
         std::to_string(debug_handle) + ")";
}

void Graph::erase_nothing() {
  std::erase_if(nodes, [](const GraphNode& node) { return node.kind == NodeKind::kNothing; });
}

std::vector<uint8_t> Graph::erase_unused() {
  std::vector<uint8_t> is_used(values.size());
  for (uint32_t output : outputs) is_used[output] = 1;
  for (size_t i = nodes.size(); i-- > 0;) {
    GraphNode& node = nodes[i];
    if (std::ranges::none_of(node.outputs, [&](uint32_t output) { return is_used[output]; })) {
      node.kind = NodeKind::kNothing;
      continue;
    }
    for (uint32_t input : node.inputs) {
      if (input != kNone) is_used[input] = 1;
    }
  }
  erase_nothing();
  return is_used;
}

std::vector<Shape> Graph::serialized_shapes() const {
  std::vector<Shape> shapes;
  shapes.reserve(values.size());
  for (const GraphValue& value : values) shapes.push_back(value.shape);
  return shapes;
}

Status node_error(Code code, const GraphNode& node, const char* format, ...) {
  char message[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(message, sizeof(message), format, arguments);
  va_end(arguments);
  return error(code, "[xnnpack] %s: %s", node.text().c_str(), message);
}

}  // namespace edgewise::xnnpack
