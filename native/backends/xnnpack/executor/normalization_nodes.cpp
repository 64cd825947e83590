#include <algorithm>
#include <cstring>

#include "backends/xnnpack/executor/fused_normalization.h"

namespace edgewise::xnnpack {
namespace {

// What a mean multiplies a row's sum with, and adds.
struct Mean {
  float factor = 0, offset = 0;
};

struct Finder {
  const Graph& graph;
  const std::vector<Shape>& shapes;
  const Readers& readers;
  NormalizationNodes found = {};

  // The node that writes `value` if it is of `kind`, computes nothing but that, and is of fp32.
  const GraphNode* source(uint32_t value, NodeKind kind) {
    const size_t i = readers.writer[value];
    if (i == Readers::kNoNode || graph.nodes[i].kind != kind || !is_simple(graph.nodes[i])) {
      return nullptr;
    }
    found.nodes.push_back(i);
    return &graph.nodes[i];
  }
  // The node of `kind` that alone reads `value`.
  const GraphNode* reader(uint32_t value, NodeKind kind) {
    const size_t i = readers.sole(graph, value);
    if (i == Readers::kNoNode || graph.nodes[i].kind != kind || !is_simple(graph.nodes[i])) {
      return nullptr;
    }
    found.nodes.push_back(i);
    return &graph.nodes[i];
  }
  bool is_simple(const GraphNode& node) const {
    return node.flags == 0 && !node.is_bounded() && is_plain(graph, node.outputs[0]);
  }
  bool is_constant(uint32_t value) const {
    const GraphValue& it = graph.values[value];
    return it.type == DataType::kFp32 && it.is_constant() && !it.is_converted();
  }
  // A copy: constants may lie at any address.
  std::vector<float> numbers(uint32_t value) const {
    const std::span<const std::byte> bytes = graph.values[value].data.bytes;
    std::vector<float> result(bytes.size() / sizeof(float));
    std::memcpy(result.data(), bytes.data(), result.size() * sizeof(float));
    return result;
  }
  // A product with one column of equal numbers, for each row of `value`.
  std::optional<Mean> mean(const GraphNode& node, uint32_t value) const {
    const uint32_t filter = node.inputs[1], bias = node.inputs[2];
    const Shape &rows = shapes[value], &means = shapes[node.outputs[0]];
    if (node.inputs[0] != value || !is_constant(filter) || graph.values[filter].shape[0] != 1 ||
        (bias != kNone && !is_constant(bias)) || means.rank != rows.rank || means.last() != 1) {
      return {};
    }
    const std::vector<float> factors = numbers(filter);
    if (factors.empty() || (bias != kNone && numbers(bias).empty())) return {};
    if (std::ranges::any_of(factors, [&](float x) { return x != factors[0]; })) return {};
    return Mean{factors[0], bias == kNone ? 0 : numbers(bias)[0]};
  }
  // The constant of a row's size that `node` combines `value` with; else kNone.
  uint32_t row_constant(const GraphNode& node, uint32_t value) const {
    const uint32_t other = node.inputs[node.inputs[0] == value ? 1 : 0];
    const size_t depth = shapes[value].last();
    const bool fits = other != value && is_constant(other) &&
                      graph.values[other].shape.elements() == depth &&
                      graph.values[other].shape.last() == depth &&
                      graph.values[other].shape.rank <= shapes[value].rank;
    return fits ? other : kNone;
  }
  // Goes on to the node of `kind` behind the output that has such a constant.
  uint32_t take_row_constant(NodeKind kind) {
    const size_t nodes = found.nodes.size();
    const GraphNode* node = reader(found.output, kind);
    const uint32_t constant = node == nullptr ? kNone : row_constant(*node, found.output);
    if (constant == kNone) {
      found.nodes.resize(nodes);
    } else {
      found.output = node->outputs[0];
    }
    return constant;
  }
  // Puts the difference from the mean in place of the input, if it is one.
  void take_mean() {
    const size_t nodes = found.nodes.size();
    const uint32_t difference = found.input;
    if (graph.values[difference].is_external() || readers.nodes[difference].size() != 2) return;
    const GraphNode* subtract = source(difference, NodeKind::kSubtract);
    if (subtract != nullptr && is_plain(graph, subtract->inputs[0])) {
      const uint32_t means = subtract->inputs[1];
      const GraphNode* product = readers.sole(graph, means) == Readers::kNoNode
                                     ? nullptr
                                     : source(means, NodeKind::kFullyConnected);
      const auto of = product == nullptr ? std::nullopt : mean(*product, subtract->inputs[0]);
      if (of && shapes[difference] == shapes[subtract->inputs[0]]) {
        found.input = subtract->inputs[0];
        found.numbers.is_centered = true;
        found.numbers.mean_factor = of->factor;
        found.numbers.mean_offset = of->offset;
        return;
      }
    }
    found.nodes.resize(nodes);
  }
};

}  // namespace

std::optional<NormalizationNodes> normalization_nodes(const Graph& graph,
                                                      const std::vector<Shape>& shapes,
                                                      const Readers& readers, size_t root) {
  Finder finder{graph, shapes, readers};
  NormalizationNodes& found = finder.found;
  const GraphNode& inverse = graph.nodes[root];
  if (!finder.is_simple(inverse)) return {};
  found.nodes.push_back(root);
  const auto sole_source = [&](uint32_t value, NodeKind kind) {
    return readers.sole(graph, value) == Readers::kNoNode ? nullptr : finder.source(value, kind);
  };
  const GraphNode* product = sole_source(inverse.inputs[0], NodeKind::kFullyConnected);
  const GraphNode* square =
      product == nullptr ? nullptr : sole_source(product->inputs[0], NodeKind::kSquare);
  if (square == nullptr) return {};
  const auto of = finder.mean(*product, square->outputs[0]);
  const GraphNode* scaled = finder.reader(inverse.outputs[0], NodeKind::kMultiply);
  if (!of || scaled == nullptr) return {};
  found.input = scaled->inputs[scaled->inputs[0] == inverse.outputs[0] ? 1 : 0];
  found.output = scaled->outputs[0];
  if (found.input != square->inputs[0] || !is_plain(graph, found.input) ||
      !(shapes[found.output] == shapes[found.input])) {
    return {};
  }
  found.numbers.square_factor = of->factor;
  found.numbers.epsilon = of->offset;
  finder.take_mean();
  found.weight = finder.take_row_constant(NodeKind::kMultiply);
  found.bias = finder.take_row_constant(NodeKind::kAdd);
  std::sort(found.nodes.begin(), found.nodes.end());
  return found;
}

}  // namespace edgewise::xnnpack
