// A payload's graph in plain structs: what the reader makes, the checks look at, and the
// builder hands to XNNPACK.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/xnnpack/datatype.h"
#include "backends/xnnpack/node_kinds.h"
#include "backends/xnnpack/shape.h"
#include "edgewise/status.h"

namespace edgewise::xnnpack {

inline constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

// Bytes of the payload or of the program's named data.
struct Constant {
  std::span<const std::byte> bytes;
  bool is_named = false;  // lives as long as the program, at one address
  explicit operator bool() const { return bytes.data() != nullptr; }
};

struct GraphValue {
  DataType type = DataType::kInvalid;
  Shape shape;  // as serialized: dynamic sizes are upper bounds
  Constant data;
  // What data is, if it is to be given to XNNPACK as fp32: see upcast_half.h, dequantize_weights.h.
  DataType stored = DataType::kInvalid;
  uint32_t serialized_id = kNone;
  uint32_t external_id = kNone;
  bool is_input = false;
  bool is_output = false;
  bool is_index = false;  // positions that an argmax writes, as int32

  // Per tensor, or, zero point only, per channel.
  float scale = 0;
  int32_t zero_point = 0;
  // Per channel, or per block.
  uint32_t channel_dim = 0;
  std::vector<float> channel_scales;
  std::vector<uint16_t> block_scales;  // bfloat16
  uint32_t block_size = 0;
  Constant scale_source;  // where the scales were read, if that is named data
  // Of values that are quantized when the program runs.
  uint32_t nonbatch_dims = 0;

  bool is_external() const { return is_input || is_output; }
  bool is_constant() const { return static_cast<bool>(data); }
  bool is_converted() const { return stored != DataType::kInvalid; }
};

// Numbers for nodes with a window: height, then width.
struct Window {
  uint32_t pad_top = 0, pad_right = 0, pad_bottom = 0, pad_left = 0;
  uint32_t kernel[2] = {1, 1};
  uint32_t stride[2] = {1, 1};
  uint32_t dilation[2] = {1, 1};
  uint32_t adjustment[2] = {0, 0};
  uint32_t groups = 1;
  uint32_t group_inputs = 1;
  uint32_t group_outputs = 1;

  bool is_pointwise() const;  // 1x1 at every pixel
};

struct GraphNode {
  NodeKind kind = NodeKind::kNothing;
  uint32_t index = 0;  // in the payload, for messages
  uint32_t debug_handle = 0;
  std::vector<uint32_t> fused;  // indices of nodes that it does the work of, too: see fold.h
  // Indices into Graph::values. Of a node with filter and bias: input, filter, bias or kNone.
  std::vector<uint32_t> inputs;
  std::vector<uint32_t> outputs;
  uint32_t flags = 0;
  bool has_bounds = false;
  float min = -std::numeric_limits<float>::infinity();
  float max = std::numeric_limits<float>::infinity();

  Window window;
  // Permutation, new shape, offsets or paddings before; sizes or paddings after.
  std::vector<uint32_t> list;
  std::vector<uint32_t> list2;
  float number = 0;  // alpha, slope, padding value
  int32_t axis = 0;

  bool is_windowed() const;
  bool is_convolution() const;  // of the three kinds
  bool is_concatenation() const;
  // The axis of a concatenation of tensors of this rank, counted from the first; infer_shapes() has
  // approved it.
  size_t axis_in(size_t rank) const {
    return static_cast<size_t>(axis < 0 ? axis + static_cast<int32_t>(rank) : axis);
  }
  bool is_bounded() const;  // by min or max
  // Its index and those of the nodes that were fused into it.
  void add_indices(std::vector<uint32_t>* indices) const;
  // "node 3 (Conv2d, debug handle 7)"
  std::string text() const;
};

struct Graph {
  std::vector<GraphValue> values;
  std::vector<GraphNode> nodes;
  std::vector<uint32_t> inputs;       // indices into values, by external id
  std::vector<uint32_t> outputs;      // likewise
  uint32_t externals = 0;             // external ids are below
  std::shared_ptr<const void> owner;  // of constants that lie in a moved flatbuffer

  std::vector<Shape> serialized_shapes() const;
  void erase_nothing();  // the nodes that became kNothing
  // The nodes of which no result is used. Says which values are.
  std::vector<uint8_t> erase_unused();
};

// "[xnnpack] node 3 (Conv2d, debug handle 7): ..."
Status node_error(Code code, const GraphNode& node, const char* format, ...) EDGEWISE_FORMAT(3, 4);

}  // namespace edgewise::xnnpack
