// Dequantized when a program is loaded: integer weights of matrix products that XNNPACK computes
// only with fp32 weights, unless a kernel of ours reads them as they are stored.
#pragma once

#include "backends/xnnpack/graph.h"
#include "core/memory.h"

namespace edgewise::xnnpack {

// Gives nodes with float activations and quantized weights, where XNNPACK has no kernel for them
// together, an fp32 twin of the weights. `graph` must have passed check_types. Converts no data.
void dequantize_weights(Graph* graph);

// The fp32 numbers that a twin's data stand for.
Result<MemoryBlock> dequantized(const GraphValue& twin);

}  // namespace edgewise::xnnpack
