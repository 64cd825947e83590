#include "backends/xnnpack/upcast_half.h"

#include <algorithm>
#include <utility>

#include "backends/xnnpack/executor/bfloat16_conversion.h"

namespace edgewise::xnnpack {
namespace {

struct Upcaster {
  Graph& graph;
  TakesHalf takes_half;
  std::vector<GraphNode> nodes;
  std::vector<uint32_t> twins;   // the fp32 value that holds the same, of each value; or kNone
  std::vector<uint32_t> merged;  // the fp32 value to be read instead, of each value; or kNone

  bool is_half(uint32_t value) const {
    return value != kNone && xnnpack::is_half(graph.values[value].type);
  }
  bool is_bfloat16(uint32_t value) const {
    return value != kNone && graph.values[value].type == DataType::kBf16;
  }
  // Whether it is computed as it is.
  bool takes(const GraphNode& node) const;
  uint32_t add_twin(uint32_t value);
  uint32_t constant_twin(uint32_t value);
  void add_convert(uint32_t from, uint32_t to, const GraphNode& reason);
  void upcast(GraphNode node);
  // Whether a conversion is not needed because there is such a twin.
  bool merge_convert(const GraphNode& node);
  void add(GraphNode node);
};

// An internal value of the same shape; not yet known as a twin.
uint32_t Upcaster::add_twin(uint32_t value) {
  GraphValue twin = graph.values[value];
  twin.type = DataType::kFp32;
  twin.is_input = twin.is_output = false;
  twin.external_id = kNone;
  graph.values.push_back(std::move(twin));
  twins.push_back(kNone);
  merged.push_back(kNone);
  return static_cast<uint32_t>(graph.values.size() - 1);
}

uint32_t Upcaster::constant_twin(uint32_t value) {
  if (twins[value] == kNone) {
    const uint32_t twin = add_twin(value);
    graph.values[twin].stored = graph.values[value].type;
    twins[value] = twin;
  }
  return twins[value];
}

void Upcaster::add_convert(uint32_t from, uint32_t to, const GraphNode& reason) {
  GraphNode convert;
  convert.kind = NodeKind::kConvert;
  convert.index = reason.index;
  convert.debug_handle = reason.debug_handle;
  convert.inputs = {from};
  convert.outputs = {to};
  nodes.push_back(std::move(convert));
}

void Upcaster::upcast(GraphNode node) {
  for (uint32_t& input : node.inputs) {
    if (!is_half(input)) continue;
    if (graph.values[input].is_constant()) {
      input = constant_twin(input);
      continue;
    }
    if (twins[input] == kNone) {
      const uint32_t twin = add_twin(input);
      add_convert(input, twin, node);
      twins[input] = twin;
    }
    input = twins[input];
  }
  std::vector<std::pair<uint32_t, uint32_t>> results;
  for (uint32_t& output : node.outputs) {
    if (!is_half(output)) continue;
    const uint32_t narrow = output;
    output = add_twin(narrow);
    twins[narrow] = output;
    results.emplace_back(output, narrow);
  }
  nodes.push_back(std::move(node));
  for (const auto& [wide, narrow] : results) add_convert(wide, narrow, GraphNode(nodes.back()));
}

bool Upcaster::merge_convert(const GraphNode& node) {
  const uint32_t from = node.inputs[0];
  const uint32_t to = node.outputs[0];
  if (node.kind != NodeKind::kConvert) return false;
  if (graph.values[from].type == DataType::kFp32 && is_half(to)) twins[to] = from;
  if (!is_half(from) || twins[from] == kNone || graph.values[to].is_output) return false;
  if (graph.values[to].type != DataType::kFp32) return false;
  merged[to] = twins[from];
  return true;
}

bool Upcaster::takes(const GraphNode& node) const {
  const auto is_narrow = [&](uint32_t value) { return is_bfloat16(value); };
  if (std::ranges::none_of(node.inputs, is_narrow) &&
      std::ranges::none_of(node.outputs, is_narrow)) {
    return takes_half(graph, node);
  }
  return is_bfloat16_conversion(graph, node);
}

void Upcaster::add(GraphNode node) {
  for (uint32_t& input : node.inputs) {
    if (input != kNone && merged[input] != kNone) input = merged[input];
  }
  if (merge_convert(node)) return;
  const auto is_half_value = [&](uint32_t value) { return is_half(value); };
  const bool uses_half = std::any_of(node.inputs.begin(), node.inputs.end(), is_half_value) ||
                         std::any_of(node.outputs.begin(), node.outputs.end(), is_half_value);
  if (uses_half && !takes(node)) return upcast(std::move(node));
  if (node.is_convolution()) {
    for (size_t i = 1; i < node.inputs.size(); ++i) {
      if (is_half(node.inputs[i])) node.inputs[i] = constant_twin(node.inputs[i]);
    }
  }
  nodes.push_back(std::move(node));
}

}  // namespace

void upcast_half(Graph* graph, TakesHalf takes_half) {
  const bool has_half = std::any_of(graph->values.begin(), graph->values.end(),
                                    [](const GraphValue& value) { return is_half(value.type); });
  if (!has_half) return;
  const std::vector<uint32_t> none(graph->values.size(), kNone);
  Upcaster upcaster{*graph, takes_half, {}, none, none};
  for (GraphNode& node : graph->nodes) upcaster.add(std::move(node));
  graph->nodes = std::move(upcaster.nodes);
  graph->erase_unused();  // results that, after all, are only needed in fp32
}

}  // namespace edgewise::xnnpack
