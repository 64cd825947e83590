// Nodes that compute so little that calling XNNPACK for them takes most of the time: those of a
// language model between its products, when it computes one token.
#pragma once

#include <optional>
#include <vector>

#include "backends/xnnpack/graph.h"
#include "backends/xnnpack/steps/small_loops.h"

namespace edgewise::xnnpack {

// Part of what a node does. Values, kNone: not there; offsets in floats.
struct NodeLoop {
  SmallLoop loop;  // but for its addresses
  uint32_t a = kNone;
  uint32_t b = kNone;
  uint32_t c = kNone;
  uint32_t out = kNone;
  size_t a_offset = 0;
  size_t out_offset = 0;
};

// The loops of `node`; nothing if there are none for it, or they are not small.
std::optional<std::vector<NodeLoop>> small_loops(const Graph& graph,
                                                 const std::vector<Shape>& shapes,
                                                 const GraphNode& node);

// Whether all nodes for which there are loops are small: an executor for such sizes has steps that
// are no good for others.
bool is_small(const Graph& graph, const std::vector<Shape>& shapes);

// Small nodes that are worth a step together; each group's can all run in its last one's place.
std::vector<std::vector<size_t>> small_groups(const Graph& graph, const std::vector<Shape>& shapes,
                                              const std::vector<bool>& is_taken);

}  // namespace edgewise::xnnpack
