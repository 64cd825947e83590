#include <cmath>

#include "backends/xnnpack/build.h"
#include "backends/xnnpack/xnn_error.h"

namespace edgewise::xnnpack {
namespace {

// XNNPACK takes lists of sizes as size_t.
struct Sizes {
  size_t items[kMaxRank] = {};
  explicit Sizes(const std::vector<uint32_t>& list) {
    for (size_t i = 0; i < list.size() && i < kMaxRank; ++i) items[i] = list[i];
  }
};

struct NodeBuilder {
  const Graph& graph;
  const std::vector<Shape>& shapes;
  const XnnIds& ids;
  xnn_subgraph_t subgraph;
  const GraphNode& node;

  uint32_t in(size_t i) const { return node.inputs[i] == kNone ? kNone : ids[node.inputs[i]]; }
  uint32_t out(size_t i = 0) const { return ids[node.outputs[i]]; }

  xnn_status define() const;
  xnn_status define_unary() const;
  xnn_status define_convolution() const;
  xnn_status define_pooling() const;
  xnn_status define_global_pool() const;
  xnn_status define_concatenation() const;
};

xnn_status NodeBuilder::define_unary() const {
  const xnn_unary_operator type = traits_of(node.kind).unary;
  if (type == xnn_unary_invalid) return xnn_status_unsupported_parameter;
  xnn_unary_params params{};
  if (node.kind == NodeKind::kClamp) params.clamp = {node.min, node.max};
  if (node.kind == NodeKind::kELU) params.elu = {node.number};
  if (node.kind == NodeKind::kLeakyReLU) params.leaky_relu = {node.number};
  return xnn_define_unary(subgraph, type, &params, in(0), out(), 0);
}

xnn_status NodeBuilder::define_convolution() const {
  const Window& w = node.window;
  if (node.kind == NodeKind::kDepthwiseConv2d) {
    return xnn_define_depthwise_convolution_2d(
        subgraph, w.pad_top, w.pad_right, w.pad_bottom, w.pad_left, w.kernel[0], w.kernel[1],
        w.stride[0], w.stride[1], w.dilation[0], w.dilation[1], w.group_outputs, w.groups, node.min,
        node.max, in(0), in(1), in(2), out(), node.flags);
  }
  if (node.kind == NodeKind::kConvTranspose2d) {
    return xnn_define_deconvolution_2d(subgraph, w.pad_top, w.pad_right, w.pad_bottom, w.pad_left,
                                       w.adjustment[0], w.adjustment[1], w.kernel[0], w.kernel[1],
                                       w.stride[0], w.stride[1], w.dilation[0], w.dilation[1],
                                       w.groups, w.group_inputs, w.group_outputs, node.min,
                                       node.max, in(0), in(1), in(2), out(), node.flags);
  }
  return xnn_define_convolution_2d(
      subgraph, w.pad_top, w.pad_right, w.pad_bottom, w.pad_left, w.kernel[0], w.kernel[1],
      w.stride[0], w.stride[1], w.dilation[0], w.dilation[1], w.groups, w.group_inputs,
      w.group_outputs, node.min, node.max, in(0), in(1), in(2), out(), node.flags);
}

xnn_status NodeBuilder::define_pooling() const {
  const Window& w = node.window;
  if (node.kind == NodeKind::kAvgPooling2d) {
    return xnn_define_average_pooling_2d(subgraph, w.pad_top, w.pad_right, w.pad_bottom, w.pad_left,
                                         w.kernel[0], w.kernel[1], w.stride[0], w.stride[1],
                                         node.min, node.max, in(0), out(), node.flags);
  }
  if (node.kind == NodeKind::kArgMaxPooling2d) {
    return xnn_define_argmax_pooling_2d(subgraph, w.pad_top, w.pad_right, w.pad_bottom, w.pad_left,
                                        w.kernel[0], w.kernel[1], in(0), out(0), out(1), 0);
  }
  return xnn_define_max_pooling_2d(subgraph, w.pad_top, w.pad_right, w.pad_bottom, w.pad_left,
                                   w.kernel[0], w.kernel[1], w.stride[0], w.stride[1],
                                   w.dilation[0], w.dilation[1], node.min, node.max, in(0), out(),
                                   node.flags);
}

// A mean over height and width, and a clamp if it has bounds.
xnn_status NodeBuilder::define_global_pool() const {
  const auto rank = static_cast<int64_t>(shapes[node.inputs[0]].rank);
  const int64_t axes[] = {rank - 3, rank - 2};
  uint32_t mean = out();
  if (node.has_bounds) {
    const GraphValue& value = graph.values[node.outputs[0]];
    const Shape& shape = shapes[node.outputs[0]];
    const xnn_status status =
        is_quantized_8bit(value.type)
            ? xnn_define_quantized_tensor_value(subgraph, to_xnn(value.type), value.zero_point,
                                                value.scale, shape.rank, shape.dims.data(), nullptr,
                                                kNone, 0, &mean)
            : xnn_define_tensor_value(subgraph, to_xnn(value.type), shape.rank, shape.dims.data(),
                                      nullptr, kNone, 0, &mean);
    if (status != xnn_status_success) return status;
  }
  const xnn_status status =
      xnn_define_static_reduce_v2(subgraph, xnn_reduce_mean, 2, axes, in(0), mean, node.flags);
  if (status != xnn_status_success || !node.has_bounds) return status;
  xnn_unary_params params{};
  params.clamp = {node.min, node.max};
  return xnn_define_unary(subgraph, xnn_unary_clamp, &params, mean, out(), 0);
}

xnn_status NodeBuilder::define_concatenation() const {
  switch (node.inputs.size()) {
    case 2:
      return xnn_define_concatenate2(subgraph, node.axis, in(0), in(1), out(), 0);
    case 3:
      return xnn_define_concatenate3(subgraph, node.axis, in(0), in(1), in(2), out(), 0);
    case 4:
      return xnn_define_concatenate4(subgraph, node.axis, in(0), in(1), in(2), in(3), out(), 0);
    default:
      return xnn_define_concatenate5(subgraph, node.axis, in(0), in(1), in(2), in(3), in(4), out(),
                                     0);
  }
}

xnn_status NodeBuilder::define() const {
  const Sizes list(node.list);
  const Sizes list2(node.list2);
  if (node.is_convolution()) return define_convolution();
  if (node.is_windowed()) return define_pooling();
  if (node.is_concatenation()) return define_concatenation();
  if (const auto type = traits_of(node.kind).binary; type != xnn_binary_invalid) {
    const xnn_binary_params params{node.min, node.max};
    return xnn_define_binary(subgraph, type, &params, in(0), in(1), out(), 0);
  }
  switch (node.kind) {
    case NodeKind::kFullyConnected:
      return xnn_define_fully_connected(subgraph, node.min, node.max, in(0), in(1), in(2), out(),
                                        node.flags);
    case NodeKind::kSoftmax:
      return xnn_define_softmax(subgraph, in(0), out(), 0);
    case NodeKind::kStaticTranspose:
      return xnn_define_static_transpose(subgraph, node.list.size(), list.items, in(0), out(), 0);
    case NodeKind::kStaticResizeBilinear2D:
      return xnn_define_static_resize_bilinear_2d(subgraph, list.items[0], list.items[1], in(0),
                                                  out(), node.flags);
    case NodeKind::kStaticConstantPad:
      return xnn_define_static_constant_pad(subgraph, list.items, list2.items, node.number, in(0),
                                            out(), 0);
    case NodeKind::kGlobalAvgPooling2d:
      return define_global_pool();
    case NodeKind::kStaticReshape:
      return xnn_define_static_reshape(subgraph, node.list.size(), list.items, in(0), out(), 0);
    case NodeKind::kStaticSlice:
      return xnn_define_static_slice(subgraph, node.list.size(), list.items, list2.items, in(0),
                                     out(), 0);
    case NodeKind::kScaledDotProductAttention:
      return xnn_define_scaled_dot_product_attention(subgraph, xnn_attention_logits_cap_type_none,
                                                     nullptr, in(0), in(1), in(2), in(3), in(4),
                                                     out(), 0);
    case NodeKind::kBatchMatrixMultiply:
      return xnn_define_batch_matrix_multiply(subgraph, in(0), in(1), out(), node.flags);
    case NodeKind::kCopy:
      return xnn_define_copy(subgraph, in(0), out(), 0);
    default:
      return define_unary();
  }
}

}  // namespace

Status define_nodes(const Graph& graph, const std::vector<Shape>& shapes, const XnnIds& ids,
                    xnn_subgraph_t subgraph) {
  for (const GraphNode& node : graph.nodes) {
    const NodeBuilder builder{graph, shapes, ids, subgraph, node};
    if (auto status = check_xnn(builder.define(), node); !status.ok()) return status;
  }
  return {};
}

}  // namespace edgewise::xnnpack
