// What steps on 8-bit integers with a scale for each channel have in common: from sums of products
// to results, as XNNPACK computes them.
#pragma once

#include <vector>

#include "backends/xnnpack/executor/int8_kernels.h"
#include "backends/xnnpack/graph.h"

namespace edgewise::xnnpack {

// Whether `node` has 8-bit integers, and constant weights with a scale for each channel, which is
// dimension `channel_dim` of theirs.
bool has_int8_channels(const Graph& graph, const GraphNode& node, uint32_t channel_dim);
inline constexpr const char* kInt8ChannelsRule =
    "8-bit integers, constant weights with a scale for each channel";

// Of results that are `out`'s, with the bounds of `node`.
Int8Range int8_range(const GraphNode& node, const GraphValue& out);

struct Int8Channels {
  // Of a node that has them; `count` channels and more, of zeros, up to a multiple of two panels'.
  // `offset`: what kernels have added to the input's numbers.
  Int8Channels(const Graph& graph, const GraphNode& node, int offset);

  size_t count;
  int8_t zero;  // of the input
  Int8Range range;
  std::vector<int32_t> bias;  // with the input's zero point
  std::vector<float> scales;
};

}  // namespace edgewise::xnnpack
