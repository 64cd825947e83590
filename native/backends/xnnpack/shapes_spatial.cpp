#include <algorithm>
#include <cinttypes>

#include "backends/xnnpack/shapes.h"

namespace edgewise::xnnpack {
namespace {

#define SHAPE_ERROR(...) node_error(Code::kInvalidProgram, node, __VA_ARGS__)

// Far beyond any model's, and small enough that sums and products of a few stay in 32 bits.
constexpr uint32_t kMaxWindow = 1 << 14;
constexpr uint32_t kMaxChannels = 1 << 24;

bool within(uint32_t value, uint32_t low, uint32_t high) { return value >= low && value <= high; }

Status check_window(const GraphNode& node) {
  const Window& window = node.window;
  const bool is_same = (node.flags & XNN_FLAG_TENSORFLOW_SAME_PADDING) != 0;
  for (uint32_t pad : {window.pad_top, window.pad_right, window.pad_bottom, window.pad_left}) {
    if (pad > (is_same ? 0 : kMaxWindow)) {
      return SHAPE_ERROR("its paddings must be at most %u, or 0 with SAME padding; got %u",
                         kMaxWindow, pad);
    }
  }
  for (size_t i = 0; i < 2; ++i) {
    if (!within(window.kernel[i], 1, kMaxWindow) || !within(window.stride[i], 1, kMaxWindow) ||
        !within(window.dilation[i], 1, kMaxWindow)) {
      return SHAPE_ERROR("its kernel, stride and dilation must be from 1 to %u; got %u, %u and %u",
                         kMaxWindow, window.kernel[i], window.stride[i], window.dilation[i]);
    }
  }
  return {};
}

// The size that the kernel covers.
size_t reach(const Window& window, size_t i) {
  return (size_t{window.kernel[i]} - 1) * window.dilation[i] + 1;
}

Status infer_extent(const GraphNode& node, const Shape& input, Shape* out) {
  const Window& window = node.window;
  const size_t pads[] = {size_t{window.pad_top} + window.pad_bottom,
                         size_t{window.pad_left} + window.pad_right};
  for (size_t i = 0; i < 2; ++i) {
    const size_t size = input[1 + i];
    if ((node.flags & XNN_FLAG_TENSORFLOW_SAME_PADDING) != 0) {
      (*out)[1 + i] = (size + window.stride[i] - 1) / window.stride[i];
      continue;
    }
    if (size + pads[i] < reach(window, i)) {
      return SHAPE_ERROR("its window of %zu must fit into its padded input, %s; got %zu",
                         reach(window, i), input.text().c_str(), size + pads[i]);
    }
    (*out)[1 + i] = (size + pads[i] - reach(window, i)) / window.stride[i] + 1;
  }
  return {};
}

Status infer_transposed_extent(const GraphNode& node, const Shape& input, Shape* out) {
  const Window& window = node.window;
  const size_t pads[] = {size_t{window.pad_top} + window.pad_bottom,
                         size_t{window.pad_left} + window.pad_right};
  // XNNPACK splits the kernel into stride times stride parts.
  if (window.stride[0] * window.stride[1] > kMaxWindow) {
    return SHAPE_ERROR("its strides' product must be at most %u; got %u and %u", kMaxWindow,
                       window.stride[0], window.stride[1]);
  }
  for (size_t i = 0; i < 2; ++i) {
    const uint64_t full =
        uint64_t{input[1 + i] - 1} * window.stride[i] + reach(window, i) + window.adjustment[i];
    if (window.adjustment[i] >= window.stride[i] || pads[i] >= full) {
      return SHAPE_ERROR("its adjustment must be below its stride %u, its paddings below %" PRIu64
                         "; got %u, %zu",
                         window.stride[i], full, window.adjustment[i], pads[i]);
    }
    // kMaxDim does not fit.
    (*out)[1 + i] = static_cast<size_t>(std::min<uint64_t>(full - pads[i], kMaxDim));
    // XNNPACK writes out of bounds there.
    if ((*out)[1 + i] < window.stride[i]) {
      return node_error(Code::kUnsupported, node,
                        "its result must not be smaller than its stride %u; got %zu",
                        window.stride[i], (*out)[1 + i]);
    }
  }
  return {};
}

// Channels, filter and bias of a convolution.
Status check_filter(const Graph& graph, const GraphNode& node, const std::vector<Shape>& shapes,
                    Shape* out) {
  const Window& window = node.window;
  const Shape& input = shapes[node.inputs[0]];
  const Shape& filter = shapes[node.inputs[1]];
  if (!within(window.groups, 1, kMaxChannels) || !within(window.group_inputs, 1, kMaxChannels) ||
      !within(window.group_outputs, 1, kMaxChannels)) {
    return SHAPE_ERROR("its groups and their channels must be from 1 to %u; got %u of %u to %u",
                       kMaxChannels, window.groups, window.group_inputs, window.group_outputs);
  }
  const uint64_t all_inputs = uint64_t{window.groups} * window.group_inputs;
  const uint64_t all_outputs = uint64_t{window.groups} * window.group_outputs;
  if (all_inputs >= kMaxDim || all_outputs >= kMaxDim) {
    return SHAPE_ERROR("its channels must be below %zu; got %" PRIu64 " to %" PRIu64, kMaxDim,
                       all_inputs, all_outputs);
  }
  const auto inputs = static_cast<size_t>(all_inputs), outputs = static_cast<size_t>(all_outputs);
  const bool is_depthwise = node.kind == NodeKind::kDepthwiseConv2d;
  if (is_depthwise && window.group_inputs != 1) {
    return SHAPE_ERROR("it must have one input channel in each group; got %u", window.group_inputs);
  }
  Shape expected;
  expected.rank = 4;
  expected.dims = {outputs, window.kernel[0], window.kernel[1], window.group_inputs};
  if (is_depthwise) expected.dims = {1, window.kernel[0], window.kernel[1], outputs};
  if (!(filter == expected)) {
    return SHAPE_ERROR("its filter must be %s; got %s", expected.text().c_str(),
                       filter.text().c_str());
  }
  if (input[3] != inputs) {
    return SHAPE_ERROR("its input must have %zu channels; got %s", inputs, input.text().c_str());
  }
  if (node.inputs[2] != kNone && shapes[node.inputs[2]].elements() != outputs) {
    return SHAPE_ERROR("its bias must have %zu elements; got %s", outputs,
                       shapes[node.inputs[2]].text().c_str());
  }
  // One set of quantization parameters for each image.
  const GraphValue& value = graph.values[node.inputs[0]];
  if (value.type == DataType::kQdint8 && value.nonbatch_dims != 3) {
    return SHAPE_ERROR("its input must be quantized image by image; got num_nonbatch_dims %u",
                       value.nonbatch_dims);
  }
  (*out)[3] = outputs;
  return {};
}

Status check_pooling(const GraphNode& node) {
  const Window& window = node.window;
  const bool is_padded_too_far =
      window.pad_top >= reach(window, 0) || window.pad_bottom >= reach(window, 0) ||
      window.pad_left >= reach(window, 1) || window.pad_right >= reach(window, 1);
  if (is_padded_too_far) {
    return SHAPE_ERROR(
        "its paddings must be smaller than its window, %zu by %zu; got %u, %u, %u, %u",
        reach(window, 0), reach(window, 1), window.pad_top, window.pad_right, window.pad_bottom,
        window.pad_left);
  }
  return {};
}

Status infer_resize(const GraphNode& node, const Shape& input, Shape* out) {
  *out = input;
  for (size_t i = 0; i < 2; ++i) {
    if (!within(node.list[i], 1, kMaxChannels) ||
        !within(static_cast<uint32_t>(input[1 + i]), 1, kMaxChannels)) {
      return SHAPE_ERROR("its sizes must be from 1 to %u; got %u from %s", kMaxChannels,
                         node.list[i], input.text().c_str());
    }
    (*out)[1 + i] = node.list[i];
  }
  return {};
}

}  // namespace

Status infer_spatial(const Graph& graph, const GraphNode& node, const std::vector<Shape>& shapes,
                     Shape* out) {
  const Shape& input = shapes[node.inputs[0]];
  if (input.rank != 4 || input.has_zero()) {
    return SHAPE_ERROR("its input must have four dimensions, none of them 0; got %s",
                       input.text().c_str());
  }
  if (node.kind == NodeKind::kStaticResizeBilinear2D) return infer_resize(node, input, out);
  if (auto status = check_window(node); !status.ok()) return status;
  *out = input;
  if (node.kind == NodeKind::kConvTranspose2d) {
    if (auto status = infer_transposed_extent(node, input, out); !status.ok()) return status;
  } else {
    if (auto status = infer_extent(node, input, out); !status.ok()) return status;
  }
  return node.is_convolution() ? check_filter(graph, node, shapes, out) : check_pooling(node);
}

}  // namespace edgewise::xnnpack
