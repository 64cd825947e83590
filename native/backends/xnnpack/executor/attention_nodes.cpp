#include <algorithm>

#include "backends/xnnpack/executor/fused_attention.h"

namespace edgewise::xnnpack {
namespace {

struct Finder {
  const Graph& graph;
  const Readers& readers;
  AttentionNodes found = {};
  std::vector<size_t> writer = {};

  // The node that writes `value` if it is of `kind` and its result is read by one node only.
  const GraphNode* sole_source(uint32_t value, NodeKind kind) {
    const size_t node = writer[value];
    if (node == Readers::kNoNode || graph.nodes[node].kind != kind ||
        graph.values[value].type != DataType::kFp32 ||
        readers.sole(graph, value) == Readers::kNoNode) {
      return nullptr;
    }
    found.nodes.push_back(node);
    return &graph.nodes[node];
  }
  // What `value`, batch x heads x tokens x depth or its transposed, is a transposition of.
  HeadsValue before_transpose(uint32_t value, bool is_transposed) {
    const GraphNode* node = sole_source(value, NodeKind::kStaticTranspose);
    const size_t depth = is_transposed ? 2 : 3;
    if (node == nullptr || node->list.size() != 4 || node->list[depth] != 3) return {};
    const GraphValue& from = graph.values[node->inputs[0]];
    if (from.type != DataType::kFp32 || from.is_constant()) return {};
    return {node->inputs[0], node->list[0], node->list[1], node->list[5 - depth]};
  }
};

}  // namespace

std::optional<AttentionNodes> attention_nodes(const Graph& graph, const Readers& readers,
                                              size_t softmax) {
  Finder finder{graph, readers};
  finder.writer.assign(graph.values.size(), Readers::kNoNode);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (uint32_t output : graph.nodes[i].outputs) finder.writer[output] = i;
  }
  AttentionNodes& found = finder.found;
  found.nodes.push_back(softmax);
  const uint32_t weights = graph.nodes[softmax].outputs[0];
  const GraphNode* scores =
      finder.sole_source(graph.nodes[softmax].inputs[0], NodeKind::kBatchMatrixMultiply);
  const size_t mix = readers.sole(graph, weights);
  if (scores == nullptr || mix == Readers::kNoNode) return {};
  const GraphNode& mixing = graph.nodes[mix];
  if (mixing.kind != NodeKind::kBatchMatrixMultiply || mixing.flags != 0 ||
      mixing.inputs[0] != weights) {
    return {};
  }
  const size_t last = readers.sole(graph, mixing.outputs[0]);
  if (last == Readers::kNoNode || graph.nodes[last].kind != NodeKind::kStaticTranspose) return {};
  found.nodes.push_back(mix);
  const bool is_transposed = (scores->flags & XNN_FLAG_TRANSPOSE_B) != 0;
  if ((scores->flags & ~uint32_t{XNN_FLAG_TRANSPOSE_B}) != 0) return {};
  found.queries = finder.before_transpose(scores->inputs[0], false);
  found.keys = finder.before_transpose(scores->inputs[1], !is_transposed);
  found.values = finder.before_transpose(mixing.inputs[1], false);
  const std::vector<uint32_t>& order = graph.nodes[last].list;
  const uint32_t output = graph.nodes[last].outputs[0];
  if (found.queries.value == kNone || found.keys.value == kNone || found.values.value == kNone ||
      graph.values[output].type != DataType::kFp32 || order.size() != 4 || order[3] != 3) {
    return {};
  }
  const auto axis = [&](uint32_t of) {
    return static_cast<size_t>(std::find(order.begin(), order.end(), of) - order.begin());
  };
  found.output = {output, axis(0), axis(1), axis(2)};
  found.nodes.push_back(last);
  std::sort(found.nodes.begin(), found.nodes.end());
  return found;
}

}  // namespace edgewise::xnnpack
