#include "backends/xnnpack/read_graph.h"

#include <algorithm>

namespace edgewise::xnnpack {
namespace {

// Inputs and outputs by external id; no two of the same.
Status collect_externals(Graph* graph) {
  std::vector<uint32_t> by_id(graph->externals, kNone);
  for (uint32_t i = 0; i < graph->values.size(); ++i) {
    const GraphValue& value = graph->values[i];
    if (!value.is_external()) continue;
    uint32_t& slot = by_id[value.external_id];
    if (slot != kNone) {
      return error(Code::kInvalidProgram,
                   "[xnnpack] external ids must be unique; got %u for values %u and %u",
                   value.external_id, graph->values[slot].serialized_id, value.serialized_id);
    }
    slot = i;
  }
  for (uint32_t i : by_id) {
    if (i != kNone) (graph->values[i].is_input ? graph->inputs : graph->outputs).push_back(i);
  }
  if (graph->outputs.empty()) {
    return error(Code::kInvalidProgram, "[xnnpack] a graph must have an output; got none");
  }
  return {};
}

// Every value is written once, before it is read; inputs and constants never. Nodes of which no
// result is used, such as ExecuTorch's partitions may have, are left out; of several results all
// must be used.
Status check_order(Graph* graph) {
  const std::vector<GraphValue>& values = graph->values;
  std::vector<uint8_t> is_written(values.size());
  for (uint32_t i = 0; i < values.size(); ++i) {
    is_written[i] = values[i].is_input || values[i].is_constant();
  }
  for (const GraphNode& node : graph->nodes) {
    for (uint32_t input : node.inputs) {
      if (input == kNone || is_written[input]) continue;
      return node_error(Code::kInvalidProgram, node,
                        "what it reads must be written before; value %u is not",
                        values[input].serialized_id);
    }
    for (uint32_t output : node.outputs) {
      if (is_written[output]) {
        return node_error(Code::kInvalidProgram, node,
                          "it must not write an input, a constant, or what another node wrote; "
                          "got value %u",
                          values[output].serialized_id);
      }
      is_written[output] = 1;
    }
  }
  for (uint32_t output : graph->outputs) {
    if (!is_written[output] || values[output].is_constant()) {
      return error(Code::kInvalidProgram, "[xnnpack] output value %u must be written by a node",
                   values[output].serialized_id);
    }
  }
  const std::vector<uint8_t> is_used = graph->erase_unused();
  for (const GraphNode& node : graph->nodes) {
    for (uint32_t output : node.outputs) {
      if (is_used[output]) continue;
      return node_error(Code::kUnsupported, node, "its result must be used; value %u is not",
                        values[output].serialized_id);
    }
  }
  return {};
}

}  // namespace

Result<Graph> read_graph(const Payload& payload, const NamedData* named_data) {
  const fb::XNNGraph& source = *payload.graph;
  if (source.xvalues() == nullptr || source.xnodes() == nullptr || source.xnodes()->size() == 0) {
    return error(Code::kInvalidProgram, "[xnnpack] a graph must have nodes and values; got none");
  }
  Graph graph;
  graph.owner = payload.owner;
  graph.externals = source.num_externs();
  // Also bounds what XNNPACK allocates for them.
  if (graph.externals > source.xvalues()->size()) {
    return error(Code::kInvalidProgram,
                 "[xnnpack] a graph must have a value for each input and output; got %u of them "
                 "and %u values",
                 graph.externals, source.xvalues()->size());
  }
  ValueIndex index;
  if (auto status = read_values(payload, named_data, &graph, &index); !status.ok()) return status;
  if (auto status = collect_externals(&graph); !status.ok()) return status;
  if (auto status = read_nodes(payload, index, &graph); !status.ok()) return status;
  if (auto status = check_order(&graph); !status.ok()) return status;
  return graph;
}

}  // namespace edgewise::xnnpack
