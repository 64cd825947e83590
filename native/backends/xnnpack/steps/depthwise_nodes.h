// A 3x3 depthwise convolution with the 1x1 convolutions before and after it: the inverted residual
// blocks of MobileNet.
#pragma once

#include <optional>
#include <vector>

#include "backends/xnnpack/steps/linear_nodes.h"

namespace edgewise::xnnpack {

struct DepthwiseNodes {
  std::vector<size_t> nodes;          // of the graph, ascending
  std::optional<LinearNodes> before;  // no residual
  uint32_t input = kNone;             // of the depthwise convolution, as the next four
  uint32_t filter = kNone;
  uint32_t bias = kNone;
  float min = 0;
  float max = 0;
  Window window;
  LinearNodes after;
};

// What begins with `node`, a convolution of either kind. Nothing if it is not of fp32 with
// constant weights, or if anything else reads what lies between.
std::optional<DepthwiseNodes> depthwise_nodes(const Graph& graph, const std::vector<Shape>& shapes,
                                              const Readers& readers,
                                              const std::vector<bool>& is_taken, size_t node);

}  // namespace edgewise::xnnpack
