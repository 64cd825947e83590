// From a Graph to a subgraph of XNNPACK's.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/xnnpack/graph.h"
#include "backends/xnnpack/weights_cache.h"
#include "xnnpack.h"

namespace edgewise::xnnpack {

struct SubgraphDelete {
  void operator()(xnn_subgraph_t subgraph) const { xnn_delete_subgraph(subgraph); }
};
using SubgraphPtr = std::unique_ptr<xnn_subgraph, SubgraphDelete>;

// XNNPACK's ids of a graph's values; kNone for values that no node uses.
using XnnIds = std::vector<uint32_t>;

// `graph` must have passed all checks, and `shapes` be what infer_shapes made. `data`: where
// XNNPACK reads each value that is constant; null for the others.
Status define_values(const Graph& graph, const std::vector<Shape>& shapes,
                     const std::vector<const void*>& data, xnn_subgraph_t subgraph, XnnIds* ids);
Status define_nodes(const Graph& graph, const std::vector<Shape>& shapes, const XnnIds& ids,
                    xnn_subgraph_t subgraph);
// What tells a weight's scales apart in a key; empty: nothing does.
std::string scales_text(const GraphValue& value, const PackedWeights& weights);
// Tells the cache what each node with weights packs.
void describe_weights(const Graph& graph, const std::vector<Shape>& shapes,
                      const std::vector<const void*>& data, WeightsCache* cache);

}  // namespace edgewise::xnnpack
