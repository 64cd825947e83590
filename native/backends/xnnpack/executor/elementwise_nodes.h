// Elementwise and similar nodes that compute so little that calling XNNPACK for them takes most of
// the time: those of a language model between its matrix products, when it computes one token.
#pragma once

#include <optional>
#include <vector>

#include "backends/xnnpack/executor/elementwise_loops.h"
#include "backends/xnnpack/graph.h"

namespace edgewise::xnnpack {

// Elements of a small node: below, a second thread comes too late.
inline constexpr size_t kMostElementwise = 16384;

// Part of what a node does. Values, kNone: not there; offsets in floats.
struct NodeLoop {
  ElementwiseLoop loop;  // but for its addresses
  uint32_t a = kNone;
  uint32_t b = kNone;
  uint32_t c = kNone;
  uint32_t out = kNone;
  size_t a_offset = 0;
  size_t out_offset = 0;
};

// The loops of `node`; nothing if there are none for it, or they are not small.
std::optional<std::vector<NodeLoop>> elementwise_loops(const Graph& graph,
                                                       const std::vector<Shape>& shapes,
                                                       const GraphNode& node);

// Whether all nodes for which there are loops are small: an executor for such sizes has steps that
// are no good for others.
bool is_small(const Graph& graph, const std::vector<Shape>& shapes);

// Groups of small nodes that are worth a step; all of a group can run where its last node does.
std::vector<std::vector<size_t>> elementwise_groups(const Graph& graph,
                                                    const std::vector<Shape>& shapes,
                                                    const std::vector<bool>& is_taken);

}  // namespace edgewise::xnnpack
