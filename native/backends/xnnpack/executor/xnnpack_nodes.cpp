// Functions of elements, pooling, softmax, batched products and the like by XNNPACK.
#include <algorithm>

#include "backends/xnnpack/executor/xnnpack_operator.h"

namespace edgewise::xnnpack {
namespace {

xnn_quantization_params params_of(const GraphValue& value) {
  xnn_quantization_params params{};
  params.zero_point = value.zero_point;
  params.scale = value.scale;
  return params;
}

// What most operators have: one input, one output.
template <typename Functions, typename Create, typename Reshape>
xnn_status add(const Functions& f, std::vector<OperatorCalls>* calls, Create create,
               Reshape reshape) {
  return add_operator(f.name, calls, create, reshape,
                      [f](xnn_operator_t op, const OperatorAddresses& to) {
                        return call_setup(f.setup, op, to.workspace, to.in[0], to.out[0], {});
                      });
}

// A function of each element of `from`, which may be the node's output itself.
xnn_status add_unary(const OperatorNode& n, xnn_unary_operator type,
                     const xnn_unary_params& unary_params, const GraphValue& from,
                     bool reads_output, std::vector<OperatorCalls>* calls) {
  const OperatorFunctions f = EDGEWISE_XNN_OPERATOR(unary_elementwise_nc);
  const xnn_quantization_params in = params_of(from), out = params_of(n.out());
  return add_operator(
      f.name, calls,
      [&](xnn_operator_t* op) {
        return create_unary(f.create, type, to_xnn(from.type), to_xnn(n.out().type), unary_params,
                            in, out, op);
      },
      [f](xnn_operator_t op, const OperatorSizes& sizes) {
        const Shape& shape = sizes.out();
        const size_t channels = shape.last();
        return f.reshape(op, shape.elements() / channels, channels, channels, channels,
                         sizes.threads);
      },
      [f, reads_output](xnn_operator_t op, const OperatorAddresses& to) {
        return f.setup(op, reads_output ? to.out[0] : to.in[0], to.out[0]);
      });
}

// The node's bounds, in place, where its operator has none.
xnn_status add_bounds(const OperatorNode& n, std::vector<OperatorCalls>* calls) {
  if (!n.node.is_bounded()) return xnn_status_success;
  xnn_unary_params params{};
  params.clamp = {n.node.min, n.node.max};
  return add_unary(n, xnn_unary_clamp, params, n.out(), true, calls);
}

xnn_status make_unary(const OperatorNode& n, std::vector<OperatorCalls>* calls) {
  xnn_unary_params params{};
  if (n.node.kind == NodeKind::kClamp) params.clamp = {n.node.min, n.node.max};
  if (n.node.kind == NodeKind::kELU) params.elu = {n.node.number};
  if (n.node.kind == NodeKind::kLeakyReLU) params.leaky_relu = {n.node.number};
  return add_unary(n, traits_of(n.node.kind).unary, params, n.in(), false, calls);
}

template <typename Functions>
xnn_status make_quantize(const OperatorNode& n, const Functions& f,
                         std::vector<OperatorCalls>* calls) {
  return add_operator(
      f.name, calls, [&](xnn_operator_t* op) { return f.create(0, op); },
      [f, nonbatch_dims = n.out().nonbatch_dims](xnn_operator_t op, const OperatorSizes& sizes) {
        const Shape& shape = sizes.out();
        const size_t rows = shape.leading(shape.rank - nonbatch_dims);
        const size_t row = shape.elements() / rows;
        return f.reshape(op, rows, row, row, row, sizes.threads);
      },
      [f](xnn_operator_t op, const OperatorAddresses& to) {
        return call_setup(f.setup, op, {}, to.in[0], to.out[0], to.out_params);
      });
}

xnn_status make_binary(const OperatorNode& n, std::vector<OperatorCalls>* calls) {
  const OperatorFunctions f = EDGEWISE_XNN_OPERATOR(binary_elementwise_nd);
  const xnn_quantization_params a = params_of(n.in(0)), b = params_of(n.in(1)),
                                out = params_of(n.out());
  const xnn_status status = add_operator(
      f.name, calls,
      [&](xnn_operator_t* op) {
        return f.create(traits_of(n.node.kind).binary, to_xnn(n.out().type), &a, &b, &out, 0, op);
      },
      [f](xnn_operator_t op, const OperatorSizes& sizes) {
        // XNNPACK does not run what has no dimension.
        Shape shapes[2] = {sizes.in(0), sizes.in(1)};
        for (Shape& shape : shapes) {
          if (shape.rank == 0) shape[shape.rank++] = 1;
        }
        return f.reshape(op, shapes[0].rank, shapes[0].dims.data(), shapes[1].rank,
                         shapes[1].dims.data(), sizes.threads);
      },
      [f](xnn_operator_t op, const OperatorAddresses& to) {
        return f.setup(op, to.in[0], to.in[1], to.out[0]);
      });
  return status == xnn_status_success ? add_bounds(n, calls) : status;
}

template <typename Functions>
xnn_status make_softmax(const Functions& f, std::vector<OperatorCalls>* calls) {
  return add(
      f, calls, [&](xnn_operator_t* op) { return f.create(0, op); },
      [f](xnn_operator_t op, const OperatorSizes& sizes) {
        const size_t channels = sizes.in().last();
        return f.reshape(op, channels, channels, channels, sizes.in().elements() / channels,
                         sizes.threads);
      });
}

template <typename Functions>
xnn_status reshape_pooling(const Functions& f, xnn_operator_t op, const OperatorSizes& sizes) {
  const Shape& in = sizes.in();
  size_t height = 0, width = 0;
  const xnn_status status =
      call_reshape_window(f.reshape, op, sizes.workspace, sizes.threads, &height, &width, in[0],
                          in[1], in[2], in[3], in[3], in[3]);
  return sizes.checked(status, height, width);
}

template <typename Functions, typename Create>
xnn_status add_pooling(const Functions& f, std::vector<OperatorCalls>* calls, Create create) {
  return add(f, calls, create, [f](xnn_operator_t op, const OperatorSizes& sizes) {
    return reshape_pooling(f, op, sizes);
  });
}

template <typename Functions, typename Number>
xnn_status make_max_pooling(const OperatorNode& n, const Functions& f, Number min, Number max,
                            std::vector<OperatorCalls>* calls) {
  const Window& w = n.node.window;
  return add_pooling(f, calls, [&](xnn_operator_t* op) {
    return f.create(w.pad_top, w.pad_right, w.pad_bottom, w.pad_left, w.kernel[0], w.kernel[1],
                    w.stride[0], w.stride[1], w.dilation[0], w.dilation[1], min, max, n.node.flags,
                    op);
  });
}

template <typename Integer, typename Functions>
xnn_status make_max_pooling(const OperatorNode& n, const Functions& f,
                            std::vector<OperatorCalls>* calls) {
  const GraphValue& out = n.out();
  return make_max_pooling(n, f, quantized<Integer>(n.node.min, out.scale, out.zero_point),
                          quantized<Integer>(n.node.max, out.scale, out.zero_point), calls);
}

template <typename Functions>
xnn_status make_average_pooling(const OperatorNode& n, const Functions& f,
                                std::vector<OperatorCalls>* calls) {
  const Window& w = n.node.window;
  return add_pooling(f, calls, [&](xnn_operator_t* op) {
    return f.create(w.pad_top, w.pad_right, w.pad_bottom, w.pad_left, w.kernel[0], w.kernel[1],
                    w.stride[0], w.stride[1], n.node.min, n.node.max, n.node.flags, op);
  });
}

// With workspace, or without.
template <typename Setup>
xnn_status setup_argmax(Setup setup, xnn_operator_t op, const OperatorAddresses& to) {
  if constexpr (std::is_invocable_v<Setup, xnn_operator_t, Address, Address, Address>) {
    return setup(op, to.in[0], to.out[0], to.out[1]);
  } else {
    return setup(op, to.workspace, to.in[0], to.out[0], to.out[1]);
  }
}

xnn_status make_argmax_pooling(const OperatorNode& n, std::vector<OperatorCalls>* calls) {
  const OperatorFunctions f = EDGEWISE_XNN_OPERATOR(argmax_pooling2d_nhwc_f32);
  const Window& w = n.node.window;
  return add_operator(
      f.name, calls,
      [&](xnn_operator_t* op) {
        return f.create(w.pad_top, w.pad_right, w.pad_bottom, w.pad_left, w.kernel[0], w.kernel[1],
                        n.node.flags, op);
      },
      [f](xnn_operator_t op, const OperatorSizes& sizes) { return reshape_pooling(f, op, sizes); },
      [f](xnn_operator_t op, const OperatorAddresses& to) {
        return setup_argmax(f.setup, op, to);
      });
}

xnn_status make_pooling(const OperatorNode& n, std::vector<OperatorCalls>* calls) {
  if (n.node.kind == NodeKind::kArgMaxPooling2d) return make_argmax_pooling(n, calls);
  const bool is_average = n.node.kind == NodeKind::kAvgPooling2d;
  switch (n.out().type) {
    case DataType::kQint8:
      return make_max_pooling<int8_t>(n, EDGEWISE_XNN_OPERATOR(max_pooling2d_nhwc_s8), calls);
    case DataType::kQuint8:
      return make_max_pooling<uint8_t>(n, EDGEWISE_XNN_OPERATOR(max_pooling2d_nhwc_u8), calls);
    case DataType::kFp16:
      return is_average
                 ? make_average_pooling(n, EDGEWISE_XNN_OPERATOR(average_pooling2d_nhwc_f16), calls)
                 : make_max_pooling(n, EDGEWISE_XNN_OPERATOR(max_pooling2d_nhwc_f16), n.node.min,
                                    n.node.max, calls);
    default:
      return is_average
                 ? make_average_pooling(n, EDGEWISE_XNN_OPERATOR(average_pooling2d_nhwc_f32), calls)
                 : make_max_pooling(n, EDGEWISE_XNN_OPERATOR(max_pooling2d_nhwc_f32), n.node.min,
                                    n.node.max, calls);
  }
}

// A mean over height and width.
xnn_status make_global_pool(const OperatorNode& n, std::vector<OperatorCalls>* calls) {
  const OperatorFunctions f = EDGEWISE_XNN_OPERATOR(reduce_nd);
  // Sums of float32 are the result's memory, which is what no workspace says.
  const bool has_workspace = n.in().type != DataType::kFp32;
  const xnn_quantization_params in = params_of(n.in()), out = params_of(n.out());
  const xnn_status status = add(
      f, calls,
      [&](xnn_operator_t* op) {
        return f.create(xnn_reduce_mean, to_xnn(n.in().type), &in, &out, n.node.flags, op);
      },
      [f, has_workspace](xnn_operator_t op, const OperatorSizes& sizes) {
        const Shape& shape = sizes.in();
        const auto rank = static_cast<int64_t>(shape.rank);
        const int64_t axes[] = {rank - 3, rank - 2};
        return call_reshape(f.reshape, op, has_workspace ? sizes.workspace : nullptr, sizes.threads,
                            size_t{2}, static_cast<const int64_t*>(axes), shape.rank,
                            shape.dims.data());
      });
  return status == xnn_status_success ? add_bounds(n, calls) : status;
}

template <typename Functions, typename... Type>
xnn_status make_resize(const OperatorNode& n, const Functions& f, std::vector<OperatorCalls>* calls,
                       Type... type) {
  return add(
      f, calls,
      [&](xnn_operator_t* op) {
        return f.create(type..., n.node.list[0], n.node.list[1], n.node.flags, op);
      },
      [f](xnn_operator_t op, const OperatorSizes& sizes) {
        const Shape& in = sizes.in();
        return call_reshape(f.reshape, op, sizes.workspace, sizes.threads, in[0], in[1], in[2],
                            in[3], in[3], in[3]);
      });
}

xnn_status make_resize(const OperatorNode& n, std::vector<OperatorCalls>* calls) {
#ifdef EDGEWISE_XNNPACK_RESIZES_BY_TYPE
  switch (n.out().type) {
    case DataType::kQint8:
      return make_resize(n, EDGEWISE_XNN_OPERATOR(resize_bilinear2d_nhwc_s8), calls);
    case DataType::kQuint8:
      return make_resize(n, EDGEWISE_XNN_OPERATOR(resize_bilinear2d_nhwc_u8), calls);
    case DataType::kFp16:
      return make_resize(n, EDGEWISE_XNN_OPERATOR(resize_bilinear2d_nhwc_f16), calls);
    default:
      return make_resize(n, EDGEWISE_XNN_OPERATOR(resize_bilinear2d_nhwc_f32), calls);
  }
#else
  return make_resize(n, EDGEWISE_XNN_OPERATOR(resize_bilinear2d_nhwc), calls, to_xnn(n.out().type));
#endif
}

// Rows, depth and columns of products, and how many of each operand there are.
struct BatchedProduct {
  size_t batch_dims, rows, depth, columns;
  std::array<size_t, kMaxRank> a, b;

  BatchedProduct(const Shape& left, const Shape& right, bool is_transposed) {
    const size_t rank = std::max(left.rank, right.rank);
    a.fill(1);
    b.fill(1);
    std::copy_n(left.dims.begin(), left.rank, a.begin() + (rank - left.rank));
    std::copy_n(right.dims.begin(), right.rank, b.begin() + (rank - right.rank));
    batch_dims = rank - 2;
    rows = a[rank - 2];
    depth = a[rank - 1];
    columns = b[is_transposed ? rank - 2 : rank - 1];
  }
};

template <typename Functions, typename Create>
xnn_status add_batched(const OperatorNode& n, const Functions& f, std::vector<OperatorCalls>* calls,
                       Create create) {
  const bool is_transposed = (n.node.flags & XNN_FLAG_TRANSPOSE_B) != 0;
  return add_operator(
      f.name, calls, create,
      [f, is_transposed](xnn_operator_t op, const OperatorSizes& sizes) {
        const BatchedProduct product(sizes.in(0), sizes.in(1), is_transposed);
        return call_reshape(f.reshape, op, sizes.workspace, sizes.threads, product.batch_dims,
                            product.a.data(), product.b.data(), product.rows, product.depth,
                            product.columns);
      },
      [f](xnn_operator_t op, const OperatorAddresses& to) {
        return f.setup(op, to.workspace, to.in[0], to.in[1], to.out[0]);
      });
}

xnn_status make_batched(const OperatorNode& n, std::vector<OperatorCalls>* calls) {
  if (n.in().type == DataType::kFp16) {
    const OperatorFunctions f = EDGEWISE_XNN_OPERATOR(batch_matrix_multiply_nc_f16);
    return add_batched(n, f, calls, [&](xnn_operator_t* op) { return f.create(n.node.flags, op); });
  }
  const OperatorFunctions f = EDGEWISE_XNN_OPERATOR(batch_matrix_multiply_nc_f32);
  const void* b = n.constants[1];
  if (b == nullptr) {
    return add_batched(n, f, calls, [&](xnn_operator_t* op) { return f.create(n.node.flags, op); });
  }
  const Shape& shape = n.shape(1);
  const bool is_transposed = (n.node.flags & XNN_FLAG_TRANSPOSE_B) != 0;
  const size_t columns = shape[shape.rank - (is_transposed ? 2 : 1)];
  const size_t depth = shape[shape.rank - (is_transposed ? 1 : 2)];
  return add_batched(n, f, calls, [&](xnn_operator_t* op) {
    return xnn_create_batch_matrix_multiply_nc_f32_const_weights(
        shape.leading(shape.rank - 2), depth, columns, static_cast<const float*>(b), n.node.flags,
        op);
  });
}

}  // namespace

xnn_status make_operators(const OperatorNode& n, std::vector<OperatorCalls>* calls) {
  const NodeTraits& traits = traits_of(n.node.kind);
  const bool is_half = n.in().type == DataType::kFp16;
  if (n.node.is_convolution()) return make_filtered(n, calls);
  if (n.node.is_windowed()) return make_pooling(n, calls);
  if (n.node.is_concatenation()) return make_moving(n, calls);
  if (traits.binary != xnn_binary_invalid) return make_binary(n, calls);
  switch (n.node.kind) {
    case NodeKind::kFullyConnected:
      return make_filtered(n, calls);
    case NodeKind::kStaticTranspose:
    case NodeKind::kStaticConstantPad:
    case NodeKind::kStaticSlice:
    case NodeKind::kStaticReshape:
    case NodeKind::kCopy:
      return make_moving(n, calls);
    case NodeKind::kSoftmax:
      return is_half ? make_softmax(EDGEWISE_XNN_OPERATOR(softmax_nc_f16), calls)
                     : make_softmax(EDGEWISE_XNN_OPERATOR(softmax_nc_f32), calls);
    case NodeKind::kStaticResizeBilinear2D:
      return make_resize(n, calls);
    case NodeKind::kGlobalAvgPooling2d:
      return make_global_pool(n, calls);
    case NodeKind::kBatchMatrixMultiply:
      return make_batched(n, calls);
    case NodeKind::kScaledDotProductAttention:
      return make_attention(n, calls);
    case NodeKind::kConvert:
      if (n.out().type != DataType::kQdint8) return make_unary(n, calls);
      return is_half ? make_quantize(n, EDGEWISE_XNN_OPERATOR(convert_nc_f16_qd8), calls)
                     : make_quantize(n, EDGEWISE_XNN_OPERATOR(convert_nc_f32_qd8), calls);
    default:
      if (traits.unary == xnn_unary_invalid) return xnn_status_unsupported_parameter;
      return make_unary(n, calls);
  }
}

}  // namespace edgewise::xnnpack
