// The shapes of a graph's values, from those of its inputs and constants; and with them the
// checks of all that nodes say about shapes. XNNPACK itself checks little of it, and nothing of
// it in release builds where it is an assertion.
#pragma once

#include <vector>

#include "backends/xnnpack/graph.h"

namespace edgewise::xnnpack {

// `shapes` has an entry for each value. Those of inputs and constants are read; all others are
// written. Run on reading and whenever the shape of an input changes.
Status infer_shapes(const Graph& graph, std::vector<Shape>* shapes);

// Nodes with a window (convolutions, pooling) and resizing: in a file of their own.
Status infer_spatial(const Graph& graph, const GraphNode& node, const std::vector<Shape>& shapes,
                     Shape* out);

}  // namespace edgewise::xnnpack
