#include "backends/xnnpack/steps/depthwise_nodes.h"

#include <algorithm>

#include "backends/xnnpack/steps/products.h"

namespace edgewise::xnnpack {
namespace {

constexpr uint32_t kTaps = 3;

bool is_plain_constant(const Graph& graph, uint32_t value) {
  return graph.values[value].is_constant() && graph.values[value].type == DataType::kFp32;
}

bool is_3x3(const Graph& graph, const GraphNode& node) {
  const Window& w = node.window;
  const uint32_t pads[] = {w.pad_top, w.pad_right, w.pad_bottom, w.pad_left};
  return node.kind == NodeKind::kDepthwiseConv2d && node.flags == 0 && w.group_outputs == 1 &&
         w.kernel[0] == kTaps && w.kernel[1] == kTaps && w.dilation[0] == 1 && w.dilation[1] == 1 &&
         *std::max_element(std::begin(pads), std::end(pads)) < kTaps &&
         is_plain_constant(graph, node.inputs[1]) &&
         (node.inputs[2] == kNone || is_plain_constant(graph, node.inputs[2]));
}

}  // namespace

std::optional<DepthwiseNodes> depthwise_nodes(const Graph& graph, const std::vector<Shape>& shapes,
                                              const Readers& readers,
                                              const std::vector<bool>& is_taken, size_t node) {
  DepthwiseNodes found;
  size_t at = node;
  if (graph.nodes[at].kind != NodeKind::kDepthwiseConv2d) {
    found.before = linear_nodes(graph, shapes, readers, is_taken, at);
    if (!found.before || !is_product(graph.nodes[at]) || found.before->nodes.size() != 1) return {};
    found.nodes = {at};
    at = readers.sole(graph, found.before->output);
    if (at == Readers::kNoNode || is_taken[at]) return {};
  }
  const GraphNode& depthwise = graph.nodes[at];
  if (!is_3x3(graph, depthwise)) return {};
  found.nodes.push_back(at);
  found.input = depthwise.inputs[0];
  found.filter = depthwise.inputs[1];
  found.bias = depthwise.inputs[2];
  found.min = depthwise.min;
  found.max = depthwise.max;
  found.window = depthwise.window;
  const GraphValue& input = graph.values[found.input];
  if (input.type != DataType::kFp32 || input.is_constant()) return {};
  const size_t next = readers.sole(graph, depthwise.outputs[0]);
  if (next == Readers::kNoNode || is_taken[next] || !is_product(graph.nodes[next])) return {};
  const auto after = linear_nodes(graph, shapes, readers, is_taken, next);
  if (!after || after->input != depthwise.outputs[0]) return {};
  found.after = *after;
  found.nodes.insert(found.nodes.end(), after->nodes.begin(), after->nodes.end());
  std::sort(found.nodes.begin(), found.nodes.end());
  return found;
}

}  // namespace edgewise::xnnpack
