// Fuses nodes that XNNPACK can run as one: a clamp goes into the node before it, a padding with
// zeros into the convolution after it.
//
// XNNPACK has such a pass of its own, and it is not used: in the version that we build with, its
// clamp overwrites the paddings of the convolution or pooling before it.
#pragma once

#include "backends/xnnpack/graph.h"

namespace edgewise::xnnpack {

// `graph` must be read and its types checked.
void fold_nodes(Graph* graph);

}  // namespace edgewise::xnnpack
