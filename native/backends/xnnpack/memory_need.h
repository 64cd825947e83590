// How much memory a graph needs while it runs: a file may ask for more than there is, and
// XNNPACK would touch all of it.
#pragma once

#include <vector>

#include "backends/xnnpack/graph.h"

namespace edgewise::xnnpack {

// Bytes of internal values at the busiest node, and of tables that windows need. A lower bound.
size_t memory_need(const Graph& graph, const std::vector<Shape>& shapes);

// Fails if that is more than this machine has, or than `most`. 0: no such bound.
Status check_memory(const Graph& graph, const std::vector<Shape>& shapes, size_t most);

}  // namespace edgewise::xnnpack
