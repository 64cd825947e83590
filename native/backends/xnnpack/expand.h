// Weights that are integers in the file, of products that XNNPACK only computes with fp32 weights.
#pragma once

#include "backends/xnnpack/graph.h"
#include "core/memory.h"

namespace edgewise::xnnpack {

// Gives nodes with float activations and quantized weights, where XNNPACK has no kernel for them
// together, an fp32 twin of the weights. `graph` must have passed check_types. Converts no data.
void expand_weights(Graph* graph);

// The fp32 numbers that a twin's data stand for.
Result<MemoryBlock> expanded(const GraphValue& twin);

}  // namespace edgewise::xnnpack
