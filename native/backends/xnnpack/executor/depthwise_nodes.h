// A depthwise convolution with the convolutions before and after it: the blocks of MobileNet.
#pragma once

#include <optional>
#include <vector>

#include "backends/xnnpack/executor/linear_nodes.h"

namespace edgewise::xnnpack {

struct DepthwiseNodes {
  std::vector<size_t> nodes;          // of the graph, ascending
  std::optional<LinearNodes> before;  // no residual; 1x1, or of an image of few channels
  Window before_window;
  bool is_wide = false;         // whether `before` is more than 1x1
  bool swishes_before = false;  // hardswish between the two
  uint32_t input = kNone;       // of the depthwise convolution, as all up to `window`
  uint32_t filter = kNone;
  uint32_t bias = kNone;
  float min = 0;
  float max = 0;
  Window window;
  bool swishes = false;  // hardswish of its result
  uint32_t result = kNone;
  std::optional<LinearNodes> after;  // 1x1
  bool is_by_panel = false;          // has `before`, and more weights than a cache holds

  uint32_t first_value() const { return before ? before->input : input; }
  uint32_t residual() const { return after ? after->residual : kNone; }
  uint32_t last_value() const { return after ? after->output : result; }
  // The depthwise convolution alone.
  void leave_gemms();
};

// What begins with `node`, a convolution of either kind: as much as is of fp32 with constant
// weights and lies between nodes that alone read it. Nothing without a depthwise convolution of
// 3x3 or 5x5 taps.
std::optional<DepthwiseNodes> depthwise_nodes(const Graph& graph, const std::vector<Shape>& shapes,
                                              const Readers& readers,
                                              const std::vector<bool>& is_taken, size_t node);

}  // namespace edgewise::xnnpack
