// A convolution or fully connected node with what follows it and can be done as its results are
// stored: the addition of a residual, and a clamp.
#pragma once

#include <optional>
#include <vector>

#include "backends/xnnpack/graph.h"

namespace edgewise::xnnpack {

struct LinearNodes {
  std::vector<size_t> nodes;  // of the graph: the linear one first, then those that follow
  uint32_t input = kNone;
  uint32_t filter = kNone;
  uint32_t bias = kNone;
  uint32_t summed = kNone;    // the linear node's result, or that reshaped
  uint32_t residual = kNone;  // of its shape, is added to it
  uint32_t output = kNone;
  float min = 0;
  float max = 0;

  // Whether that is still so.
  bool can_take(const std::vector<Shape>& shapes) const {
    return residual == kNone || shapes[residual] == shapes[summed];
  }
};

// Who reads and writes each value.
struct Readers {
  std::vector<std::vector<size_t>> nodes;  // by value; a node that reads it twice is there twice
  std::vector<size_t> writer;              // by value; kNoNode: none

  explicit Readers(const Graph& graph);
  // The node that alone reads `value`, if nothing outside the graph does; else kNoNode.
  static constexpr size_t kNoNode = static_cast<size_t>(-1);
  size_t sole(const Graph& graph, uint32_t value) const;
};

// Of fp32 and computed by the graph, or given by its caller.
bool is_plain(const Graph& graph, uint32_t value);
// Whether filter and bias of a convolution or fully connected node are constants in fp32.
bool has_plain_weights(const Graph& graph, const GraphNode& node);

// `node` must be a convolution or fully connected. Nothing if it is not of fp32 with constant
// weights. Does not add nodes that are taken: of two convolutions that are added, one gets that.
std::optional<LinearNodes> linear_nodes(const Graph& graph, const std::vector<Shape>& shapes,
                                        const Readers& readers, const std::vector<bool>& is_taken,
                                        size_t node);
// The same of weights of any kind.
std::optional<LinearNodes> linear_nodes_of_any(const Graph& graph, const std::vector<Shape>& shapes,
                                               const Readers& readers,
                                               const std::vector<bool>& is_taken, size_t node);

}  // namespace edgewise::xnnpack
