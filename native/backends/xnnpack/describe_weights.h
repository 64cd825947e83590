// What tells packed weights apart, beside the addresses of filter and bias.
#pragma once

#include <string>
#include <vector>

#include "backends/xnnpack/graph.h"
#include "backends/xnnpack/weights_cache.h"

namespace edgewise::xnnpack {

// What tells a weight's scales apart in a key; empty: nothing does.
std::string scales_text(const GraphValue& value, const PackedWeights& weights);
// Tells the cache what `node` packs, if it does. `constants`: where each of its inputs is read;
// null if it is not constant.
void describe_weights(const Graph& graph, const std::vector<Shape>& shapes, const GraphNode& node,
                      const std::vector<const void*>& constants, WeightsCache* cache);

}  // namespace edgewise::xnnpack
