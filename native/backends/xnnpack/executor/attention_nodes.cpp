#include <algorithm>

#include "backends/xnnpack/executor/fused_attention.h"

namespace edgewise::xnnpack {
namespace {

struct Finder {
  const Graph& graph;
  const std::vector<Shape>& shapes;
  const Readers& readers;
  AttentionNodes found = {};

  // The node that writes `value` if it is of `kind` and its result is read by one node only.
  const GraphNode* sole_source(uint32_t value, NodeKind kind) {
    const size_t node = readers.writer[value];
    if (node == Readers::kNoNode || graph.nodes[node].kind != kind ||
        graph.values[value].type != DataType::kFp32 ||
        readers.sole(graph, value) == Readers::kNoNode) {
      return nullptr;
    }
    found.nodes.push_back(node);
    return &graph.nodes[node];
  }
  // The heads of `value`, as a factor of a batch matrix product has them.
  HeadsValue heads_of(uint32_t value, bool is_transposed) const {
    const size_t rank = shapes[value].rank;
    if (rank != 3 && rank != 4) return {};
    const size_t first = rank - 3;
    return {.value = value,
            .batch_axis = rank == 4 ? 0 : HeadsValue::kNoAxis,
            .head_axis = first,
            .token_axis = first + (is_transposed ? 2 : 1),
            .depth_axis = first + (is_transposed ? 1 : 2)};
  }
  // The same where they lie: in what `value` is a transposition of, unless that is read elsewhere.
  // `is_transposed`: tokens are behind the depth, as keys' may be.
  HeadsValue source(uint32_t value, bool is_transposed, bool is_keys) {
    const HeadsValue heads = heads_of(value, is_transposed);
    if (heads.value == kNone) return {};
    const size_t last = shapes[value].rank - 1;
    const size_t nodes = found.nodes.size();
    if (const GraphNode* node = sole_source(value, NodeKind::kStaticTranspose)) {
      const auto axis = [&](size_t of) { return of == HeadsValue::kNoAxis ? of : node->list[of]; };
      const uint32_t from = node->inputs[0];
      if (is_plain(graph, from) && (is_keys || node->list[heads.depth_axis] == last)) {
        return {from, axis(heads.batch_axis), axis(heads.head_axis), axis(heads.token_axis),
                axis(heads.depth_axis)};
      }
      found.nodes.resize(nodes);
    }
    return is_plain(graph, value) && (is_keys || heads.depth_axis == last) ? heads : HeadsValue{};
  }
  // Where results go that `value` is: to what it is transposed to, if nothing else reads it.
  HeadsValue destination(uint32_t value) {
    const HeadsValue heads = heads_of(value, false);
    if (heads.value == kNone) return {};
    const size_t next = readers.sole(graph, value);
    if (next == Readers::kNoNode || graph.nodes[next].kind != NodeKind::kStaticTranspose) {
      return heads;
    }
    const std::vector<uint32_t>& order = graph.nodes[next].list;
    const uint32_t output = graph.nodes[next].outputs[0];
    if (order.back() != heads.depth_axis || !is_plain(graph, output)) return heads;
    const auto axis = [&](size_t of) {
      return of == HeadsValue::kNoAxis
                 ? of
                 : static_cast<size_t>(std::find(order.begin(), order.end(), of) - order.begin());
    };
    found.nodes.push_back(next);
    return {output, axis(heads.batch_axis), axis(heads.head_axis), axis(heads.token_axis),
            axis(heads.depth_axis)};
  }
  // The product of which `value` is the result, or the sum with a mask.
  const GraphNode* scores(uint32_t value) {
    if (const GraphNode* product = sole_source(value, NodeKind::kBatchMatrixMultiply)) {
      return product;
    }
    const GraphNode* sum = sole_source(value, NodeKind::kAdd);
    if (sum == nullptr || sum->is_bounded()) return nullptr;
    for (size_t i : {0, 1}) {
      const uint32_t mask = sum->inputs[1 - i];
      if (graph.values[mask].type != DataType::kFp32) continue;
      if (const GraphNode* product = sole_source(sum->inputs[i], NodeKind::kBatchMatrixMultiply)) {
        found.mask = mask;
        return product;
      }
    }
    return nullptr;
  }
};

}  // namespace

std::optional<AttentionNodes> attention_nodes(const Graph& graph, const std::vector<Shape>& shapes,
                                              const Readers& readers, size_t softmax) {
  Finder finder{graph, shapes, readers};
  AttentionNodes& found = finder.found;
  found.nodes.push_back(softmax);
  const uint32_t weights = graph.nodes[softmax].outputs[0];
  const GraphNode* scores = finder.scores(graph.nodes[softmax].inputs[0]);
  const size_t mix = readers.sole(graph, weights);
  if (scores == nullptr || mix == Readers::kNoNode) return {};
  const GraphNode& mixing = graph.nodes[mix];
  if (mixing.kind != NodeKind::kBatchMatrixMultiply || mixing.flags != 0 ||
      mixing.inputs[0] != weights || !is_plain(graph, mixing.outputs[0])) {
    return {};
  }
  found.nodes.push_back(mix);
  const bool is_transposed = (scores->flags & XNN_FLAG_TRANSPOSE_B) != 0;
  if ((scores->flags & ~uint32_t{XNN_FLAG_TRANSPOSE_B}) != 0) return {};
  found.queries = finder.source(scores->inputs[0], false, false);
  found.keys = finder.source(scores->inputs[1], !is_transposed, true);
  found.values = finder.source(mixing.inputs[1], false, false);
  found.output = finder.destination(mixing.outputs[0]);
  if (found.queries.value == kNone || found.keys.value == kNone || found.values.value == kNone ||
      found.output.value == kNone) {
    return {};
  }
  std::sort(found.nodes.begin(), found.nodes.end());
  return found;
}

}  // namespace edgewise::xnnpack
