#include "backends/xnnpack/executor/linear_nodes.h"

#include <algorithm>

namespace edgewise::xnnpack {
Readers::Readers(const Graph& graph)
    : nodes(graph.values.size()), writer(graph.values.size(), kNoNode) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (uint32_t input : graph.nodes[i].inputs) {
      if (input != kNone) nodes[input].push_back(i);
    }
    for (uint32_t output : graph.nodes[i].outputs) writer[output] = i;
  }
}

size_t Readers::sole(const Graph& graph, uint32_t value) const {
  if (graph.values[value].is_external() || nodes[value].size() != 1) return kNoNode;
  return nodes[value][0];
}

bool is_plain(const Graph& graph, uint32_t value) {
  return graph.values[value].type == DataType::kFp32 && !graph.values[value].is_constant();
}

bool has_plain_weights(const Graph& graph, const GraphNode& node) {
  const auto is_plain_constant = [&](uint32_t value) {
    return graph.values[value].type == DataType::kFp32 && graph.values[value].is_constant();
  };
  return is_plain_constant(node.inputs[1]) &&
         (node.inputs[2] == kNone || is_plain_constant(node.inputs[2]));
}

std::optional<LinearNodes> linear_nodes(const Graph& graph, const std::vector<Shape>& shapes,
                                        const Readers& readers, const std::vector<bool>& is_taken,
                                        size_t node) {
  if (!has_plain_weights(graph, graph.nodes[node])) return {};
  return linear_nodes_of_any(graph, shapes, readers, is_taken, node);
}

std::optional<LinearNodes> linear_nodes_of_any(const Graph& graph, const std::vector<Shape>& shapes,
                                               const Readers& readers,
                                               const std::vector<bool>& is_taken, size_t node) {
  const GraphNode& first = graph.nodes[node];
  LinearNodes found{.nodes = {node},
                    .input = first.inputs[0],
                    .filter = first.inputs[1],
                    .bias = first.inputs[2],
                    .summed = first.outputs[0],
                    .output = first.outputs[0],
                    .min = first.min,
                    .max = first.max};
  if (!is_plain(graph, found.input) || !is_plain(graph, found.output)) return {};
  if (first.is_bounded()) return found;
  size_t next = readers.sole(graph, found.output);
  // The rows of a product may be given other leading dimensions first.
  size_t reshape = Readers::kNoNode;
  uint32_t summed = found.output;
  if (next != Readers::kNoNode && first.kind == NodeKind::kFullyConnected &&
      graph.nodes[next].kind == NodeKind::kStaticReshape && !is_taken[next]) {
    reshape = next;
    summed = graph.nodes[next].outputs[0];
    if (shapes[summed].last() != shapes[found.output].last()) return found;
    next = readers.sole(graph, summed);
  }
  if (next == Readers::kNoNode || is_taken[next] || graph.nodes[next].kind != NodeKind::kAdd) {
    return found;
  }
  const GraphNode& sum = graph.nodes[next];
  const uint32_t other = sum.inputs[0] == summed ? sum.inputs[1] : sum.inputs[0];
  if (!is_plain(graph, other) || !(shapes[other] == shapes[summed]) ||
      !is_plain(graph, sum.outputs[0])) {
    return found;
  }
  if (reshape != Readers::kNoNode) found.nodes.push_back(reshape);
  found.nodes.push_back(next);
  found.summed = summed;
  found.residual = other;
  found.output = sum.outputs[0];
  found.min = sum.min;
  found.max = sum.max;
  const size_t last = readers.sole(graph, found.output);
  if (last == Readers::kNoNode || graph.nodes[last].kind != NodeKind::kClamp) return found;
  const GraphNode& clamp = graph.nodes[last];
  const float min = std::max(found.min, clamp.min);
  const float max = std::min(found.max, clamp.max);
  if (!is_plain(graph, clamp.outputs[0]) || !(min <= max)) return found;
  found.nodes.push_back(last);
  found.output = clamp.outputs[0];
  found.min = min;
  found.max = max;
  return found;
}

}  // namespace edgewise::xnnpack
