#include "backends/xnnpack/executor/depthwise_nodes.h"

#include <algorithm>

#include "backends/xnnpack/executor/packed_gemm.h"

namespace edgewise::xnnpack {
namespace {

constexpr size_t kMostWide = 64;  // numbers of which a result of the first convolution is made

bool can_convolve(const Graph& graph, const GraphNode& node) {
  const Window& w = node.window;
  const uint32_t side = w.kernel[0];
  return node.kind == NodeKind::kDepthwiseConv2d && node.flags == 0 && w.group_outputs == 1 &&
         (side == 3 || side == 5) && w.kernel[1] == side && w.dilation[0] == 1 &&
         w.dilation[1] == 1 && std::max({w.stride[0], w.stride[1]}) < side &&
         std::max({w.pad_top, w.pad_right, w.pad_bottom, w.pad_left}) < side &&
         has_plain_weights(graph, node) && is_plain(graph, node.inputs[0]) &&
         is_plain(graph, node.outputs[0]);
}

// 1x1, or a convolution of few values for each of its results, whose rows are copied with padding.
bool can_precede(const GraphNode& node) {
  if (is_gemm(node)) return true;
  const Window& w = node.window;
  return node.kind == NodeKind::kConv2d && node.flags == 0 && w.groups == 1 && w.dilation[0] == 1 &&
         w.dilation[1] == 1 && size_t{w.kernel[0]} * w.kernel[1] * w.group_inputs <= kMostWide;
}

// Goes from node to node along the results that only one node reads.
struct Walk {
  const Graph& graph;
  const Readers& readers;
  const std::vector<bool>& is_taken;

  // The node that alone reads `value`.
  size_t next(uint32_t value) const {
    const size_t node = readers.sole(graph, value);
    return node == Readers::kNoNode || is_taken[node] ? Readers::kNoNode : node;
  }
  // Steps over a hardswish, if one reads `value` alone.
  bool step_over_hardswish(uint32_t* value, std::vector<size_t>* nodes) const {
    const size_t node = next(*value);
    if (node == Readers::kNoNode || graph.nodes[node].kind != NodeKind::kHardswish ||
        !is_plain(graph, graph.nodes[node].outputs[0])) {
      return false;
    }
    nodes->push_back(node);
    *value = graph.nodes[node].outputs[0];
    return true;
  }
};

}  // namespace

void DepthwiseNodes::leave_gemms() {
  const size_t first = before ? (swishes_before ? 2 : 1) : 0;
  const size_t count = swishes ? 2 : 1;
  nodes = {nodes.begin() + first, nodes.begin() + first + count};
  before.reset();
  is_wide = false;
  swishes_before = false;
  after.reset();
}

std::optional<DepthwiseNodes> depthwise_nodes(const Graph& graph, const std::vector<Shape>& shapes,
                                              const Readers& readers,
                                              const std::vector<bool>& is_taken, size_t node) {
  const Walk walk{graph, readers, is_taken};
  DepthwiseNodes found;
  if (graph.nodes[node].kind == NodeKind::kConv2d) {
    found.before = linear_nodes(graph, shapes, readers, is_taken, node);
    if (!found.before || !can_precede(graph.nodes[node]) || found.before->nodes.size() != 1) {
      return {};
    }
    found.before_window = graph.nodes[node].window;
    found.is_wide = !is_gemm(graph.nodes[node]);
    found.nodes = {node};
    uint32_t value = found.before->output;
    found.swishes_before = walk.step_over_hardswish(&value, &found.nodes);
    node = walk.next(value);
    if (node == Readers::kNoNode) return {};
  }
  const GraphNode& depthwise = graph.nodes[node];
  if (!can_convolve(graph, depthwise)) return {};
  found.nodes.push_back(node);
  found.input = depthwise.inputs[0];
  found.filter = depthwise.inputs[1];
  found.bias = depthwise.inputs[2];
  found.min = depthwise.min;
  found.max = depthwise.max;
  found.window = depthwise.window;
  found.result = depthwise.outputs[0];
  found.swishes = walk.step_over_hardswish(&found.result, &found.nodes);
  const size_t next = walk.next(found.result);
  if (next != Readers::kNoNode && is_gemm(graph.nodes[next])) {
    const auto after = linear_nodes(graph, shapes, readers, is_taken, next);
    if (after && after->input == found.result) {
      found.after = after;
      found.nodes.insert(found.nodes.end(), after->nodes.begin(), after->nodes.end());
    }
  }
  std::sort(found.nodes.begin(), found.nodes.end());
  return found;
}

}  // namespace edgewise::xnnpack
