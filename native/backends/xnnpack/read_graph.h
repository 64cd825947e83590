// From a payload to a Graph. After reading, every index, size, scale and flag is in its range,
// and every value has one writer before its first reader; whether the nodes' shapes and types
// go together is for shapes.h and node_types.h.
#pragma once

#include <unordered_map>

#include "backends/xnnpack/graph.h"
#include "backends/xnnpack/payload.h"
#include "edgewise/backend.h"

namespace edgewise::xnnpack {

Result<Graph> read_graph(const Payload& payload, const NamedData* named_data);

// The parts of read_graph, in files of their own.
using ValueIndex = std::unordered_map<uint32_t, uint32_t>;  // serialized id -> Graph::values
Status read_values(const Payload& payload, const NamedData* named_data, Graph* graph,
                   ValueIndex* index);
Status read_nodes(const Payload& payload, const ValueIndex& index, Graph* graph);

}  // namespace edgewise::xnnpack
