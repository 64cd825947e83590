// Convolutions and products of matrices by XNNPACK: which of its operators a node's types name.
#include <algorithm>
#include <tuple>
#include <utility>

#include "backends/xnnpack/executor/parallel.h"
#include "backends/xnnpack/executor/xnnpack_operator.h"

namespace edgewise::xnnpack {
namespace {

using T = DataType;

// Weights larger than a cache of a core are walked once for every few rows. In blocks of columns
// that fit, one operator after the other, each block stays there until all rows have used it.
constexpr size_t kCachedWeights = 768 * 1024;
constexpr size_t kLeastRows = 32;  // for which that is worth a call for each block
constexpr size_t kColumnStep = 64;

// Output channels of one operator.
struct Columns {
  size_t first = 0, count = 0;
};

struct ChannelsOf {
  size_t in, out;
};

ChannelsOf channels_of(const OperatorNode& n) {
  const Window& w = n.node.window;
  if (n.node.is_convolution()) {
    return {size_t{w.groups} * w.group_inputs, size_t{w.groups} * w.group_outputs};
  }
  const Shape& filter = n.shape(1);
  const bool is_transposed = (n.node.flags & XNN_FLAG_TRANSPOSE_WEIGHTS) != 0;
  return is_transposed ? ChannelsOf{filter[0], filter[1]} : ChannelsOf{filter[1], filter[0]};
}

// The first arguments. XNNPACK's depthwise convolution is one whose groups have one channel.
auto window_arguments(const OperatorNode& n) {
  const Window& w = n.node.window;
  const ChannelsOf channels = channels_of(n);
  return std::tuple(w.pad_top, w.pad_right, w.pad_bottom, w.pad_left, w.kernel[0], w.kernel[1],
                    w.stride[0], w.stride[1], w.dilation[0], w.dilation[1], w.groups,
                    size_t{w.group_inputs}, size_t{w.group_outputs}, channels.in, channels.out);
}

auto channel_arguments(const OperatorNode& n, const Columns& columns) {
  const ChannelsOf channels = channels_of(n);
  return std::tuple(channels.in, columns.count, channels.in, channels.out);
}

// Bytes of the filter's first `count` columns.
size_t filter_bytes(const OperatorNode& n, size_t count) {
  return (channels_of(n).in * bits_of(n.in(1).type) + 7) / 8 * count;
}

Address filter_at(const OperatorNode& n, const Columns& columns) {
  const auto* data = static_cast<const std::byte*>(n.constants[1]);
  return columns.first == 0 ? data : data + filter_bytes(n, columns.first);
}

Address bias_at(const OperatorNode& n, const Columns& columns) {
  if (!n.has(2)) return {};
  const auto* data = static_cast<const std::byte*>(n.constants[2]);
  return data + columns.first * bits_of(n.in(2).type) / 8;
}

// Filter, bias and bounds.
auto float_arguments(const OperatorNode& n, const Columns& columns) {
  return std::tuple(filter_at(n, columns), bias_at(n, columns), n.node.min, n.node.max);
}

const float* scales_at(const OperatorNode& n, const Columns& columns) {
  return n.in(1).channel_scales.data() + columns.first;
}

auto channelwise_arguments(const OperatorNode& n, const Columns& columns) {
  return std::tuple_cat(std::tuple(scales_at(n, columns)), float_arguments(n, columns));
}

// Of 4-bit weights.
auto zero_point_arguments(const OperatorNode& n, const Columns& columns) {
  return std::tuple_cat(std::tuple(static_cast<uint8_t>(n.in(1).zero_point)),
                        channelwise_arguments(n, columns));
}

auto blockwise_arguments(const OperatorNode& n, const Columns& columns) {
  const GraphValue& filter = n.in(1);
  const size_t blocks = filter.block_scales.size() / channels_of(n).out;
  return std::tuple_cat(
      std::tuple(size_t{filter.block_size}, static_cast<uint8_t>(filter.zero_point),
                 filter.block_scales.data() + columns.first * blocks),
      float_arguments(n, columns));
}

// Integer is the type of inputs and results. `weights`: what tells of the filter's quantization.
template <typename Integer, typename... Weights>
auto integer_arguments(const OperatorNode& n, const Columns& columns, Weights... weights) {
  const GraphValue& in = n.in();
  const GraphValue& out = n.out();
  const auto bound = [&](float value) {
    return quantized<Integer>(value, out.scale, out.zero_point);
  };
  return std::tuple(static_cast<Integer>(in.zero_point), in.scale, weights...,
                    filter_at(n, columns), bias_at(n, columns),
                    static_cast<Integer>(out.zero_point), out.scale, bound(n.node.min),
                    bound(n.node.max));
}

uint32_t flags_of(const OperatorNode& n) {
  uint32_t flags = n.node.flags & ~uint32_t{XNN_FLAG_TENSORFLOW_RESHAPE_2D};
  if (n.node.kind == NodeKind::kDepthwiseConv2d) flags |= XNN_FLAG_DEPTHWISE_CONVOLUTION;
  const bool has_wide_weights = n.in().type == T::kFp16 && n.in(1).type == T::kFp32;
  return has_wide_weights ? flags | XNN_FLAG_FP32_STATIC_WEIGHTS : flags;
}

// Rows of a product: all of the input's elements, by the number of input channels.
size_t rows_of(const OperatorSizes& sizes, size_t depth) { return sizes.in().elements() / depth; }

// A fully connected operator takes a number of rows, a convolution an image.
template <typename Functions>
constexpr bool kTakesRows =
    std::is_invocable_v<decltype(Functions::reshape), xnn_operator_t, size_t, pthreadpool_t> ||
    std::is_invocable_v<decltype(Functions::reshape), xnn_operator_t, size_t, size_t*,
                        pthreadpool_t>;

template <typename Functions>
constexpr bool kTakesAdjustment =
    std::is_invocable_v<decltype(Functions::reshape), xnn_operator_t, size_t, size_t, size_t,
                        uint32_t, uint32_t, size_t*, size_t*, pthreadpool_t>;

template <typename Functions>
xnn_status reshape_image(const Functions& f, xnn_operator_t op, const OperatorSizes& sizes) {
  const Shape& in = sizes.in();
  size_t height = 0, width = 0;
  xnn_status status;
  if constexpr (kTakesAdjustment<Functions>) {
    const uint32_t* adjustment = sizes.node.window.adjustment;
    status = f.reshape(op, in[0], in[1], in[2], adjustment[0], adjustment[1], &height, &width,
                       sizes.threads);
  } else {
    status = call_reshape_window(f.reshape, op, sizes.workspace, sizes.threads, &height, &width,
                                 in[0], in[1], in[2]);
  }
  return sizes.checked(status, height, width);
}

// `depth`: of a fully connected operator's rows.
template <typename Functions>
xnn_status reshape_filtered(const Functions& f, xnn_operator_t op, const OperatorSizes& sizes,
                            [[maybe_unused]] size_t depth) {
  if constexpr (kTakesRows<Functions>) {
    return call_reshape(f.reshape, op, sizes.workspace, sizes.threads, rows_of(sizes, depth));
  } else {
    return reshape_image(f, op, sizes);
  }
}

// An operator of which the cache has lost the weights is none.
xnn_status checked(const OperatorNode& n, xnn_operator_t* op, xnn_status status) {
  const bool has_lost = n.weights != nullptr && n.weights->take_failure();
  if (!has_lost || status != xnn_status_success) return status;
  xnn_delete_operator(std::exchange(*op, nullptr));
  return xnn_status_out_of_memory;
}

template <typename Functions, typename... Quantization>
xnn_status add(const OperatorNode& n, const Columns& columns, const Functions& f,
               const std::tuple<Quantization...>& quantization, std::vector<OperatorCalls>* calls) {
  const auto create = [&](xnn_operator_t* op) {
    const auto packed = [&](auto... arguments) {
      return checked(n, op,
                     create_packed(f.create, n.weights == nullptr ? nullptr : n.weights->get(), op,
                                   arguments..., flags_of(n)));
    };
    if constexpr (kTakesRows<Functions>) {
      return std::apply(packed, std::tuple_cat(channel_arguments(n, columns), quantization));
    } else {
      return std::apply(packed, std::tuple_cat(window_arguments(n), quantization));
    }
  };
  const size_t depth = channels_of(n).in;
  const size_t offset = columns.first * bits_of(n.out().type) / 8;
  return add_operator(
      f.name, calls, create,
      [f, depth](xnn_operator_t op, const OperatorSizes& sizes) {
        return reshape_filtered(f, op, sizes, depth);
      },
      [f, offset](xnn_operator_t op, const OperatorAddresses& to) {
        const Address out(static_cast<std::byte*>(to.out[0].data) + offset);
        return call_setup(f.setup, op, to.workspace, to.in[0], out, to.in_params);
      });
}

// Weights that another node computes.
template <typename Functions>
xnn_status add_dynamic(const OperatorNode& n, const Functions& f,
                       std::vector<OperatorCalls>* calls) {
  const bool is_transposed = (n.node.flags & XNN_FLAG_TRANSPOSE_WEIGHTS) != 0;
  return add_operator(
      f.name, calls,
      [&](xnn_operator_t* op) { return f.create(n.node.min, n.node.max, flags_of(n), op); },
      [f, is_transposed](xnn_operator_t op, const OperatorSizes& sizes) {
        const Shape& filter = sizes.in(1);
        const size_t depth = filter[is_transposed ? 0 : 1];
        const size_t columns = filter[is_transposed ? 1 : 0];
        return call_reshape(f.reshape, op, sizes.workspace, sizes.threads, rows_of(sizes, depth),
                            depth, columns, depth, columns);
      },
      [f](xnn_operator_t op, const OperatorAddresses& to) {
        return f.setup(op, to.workspace, to.in[0], to.in[1], to.in[2], to.out[0]);
      });
}

bool has_other_weights(const OperatorNode& n) {
  for (size_t i = 1; i < n.node.inputs.size(); ++i) {
    if (n.has(i) && n.constants[i] == nullptr) return true;
  }
  return false;
}

// What all three kinds have.
#define EDGEWISE_ADD_COMMON(family)                                                             \
  if (in == T::kFp32 && filter == T::kFp32) {                                                   \
    return add(n, columns, EDGEWISE_XNN_OPERATOR(family##_f32), float_arguments(n, columns),    \
               calls);                                                                          \
  }                                                                                             \
  if (in == T::kFp16) {                                                                         \
    return add(n, columns, EDGEWISE_XNN_OPERATOR(family##_f16), float_arguments(n, columns),    \
               calls);                                                                          \
  }                                                                                             \
  if (in == T::kQint8 && filter == T::kQint8) {                                                 \
    return add(n, columns, EDGEWISE_XNN_OPERATOR(family##_qs8),                                 \
               integer_arguments<int8_t>(n, columns, n.in(1).scale), calls);                    \
  }                                                                                             \
  if (in == T::kQint8 && filter == T::kQcint8) {                                                \
    return add(n, columns, EDGEWISE_XNN_OPERATOR(family##_qs8_qc8w),                            \
               integer_arguments<int8_t>(n, columns, scales_at(n, columns)), calls);            \
  }                                                                                             \
  if (in == T::kQuint8) {                                                                       \
    return add(n, columns, EDGEWISE_XNN_OPERATOR(family##_qu8),                                 \
               integer_arguments<uint8_t>(n, columns, static_cast<uint8_t>(n.in(1).zero_point), \
                                          n.in(1).scale),                                       \
               calls);                                                                          \
  }                                                                                             \
  if (in == T::kQdint8 && filter == T::kQcint8 && out == T::kFp32) {                            \
    return add(n, columns, EDGEWISE_XNN_OPERATOR(family##_qd8_f32_qc8w),                        \
               channelwise_arguments(n, columns), calls);                                       \
  }

xnn_status make_columns(const OperatorNode& n, const Columns& columns,
                        std::vector<OperatorCalls>* calls) {
  const T in = n.in().type, filter = n.in(1).type, out = n.out().type;
  EDGEWISE_ADD_COMMON(fully_connected_nc)
  if (in == T::kFp32 && filter == T::kQcint8) {
    return add(n, columns, EDGEWISE_XNN_OPERATOR(fully_connected_nc_f32_qc8w),
               channelwise_arguments(n, columns), calls);
  }
  if (in == T::kFp32) {
    return add(n, columns, EDGEWISE_XNN_OPERATOR(fully_connected_nc_f32_qc4w),
               zero_point_arguments(n, columns), calls);
  }
  if (filter == T::kQcint8) {
    return add(n, columns, EDGEWISE_XNN_OPERATOR(fully_connected_nc_qd8_f16_qc8w),
               channelwise_arguments(n, columns), calls);
  }
  if (filter == T::kQcint4) {
    return out == T::kFp32 ? add(n, columns, EDGEWISE_XNN_OPERATOR(fully_connected_nc_qd8_f32_qc4w),
                                 zero_point_arguments(n, columns), calls)
                           : add(n, columns, EDGEWISE_XNN_OPERATOR(fully_connected_nc_qd8_f16_qc4w),
                                 zero_point_arguments(n, columns), calls);
  }
  return out == T::kFp32 ? add(n, columns, EDGEWISE_XNN_OPERATOR(fully_connected_nc_qd8_f32_qb4w),
                               blockwise_arguments(n, columns), calls)
                         : add(n, columns, EDGEWISE_XNN_OPERATOR(fully_connected_nc_qd8_f16_qb4w),
                               blockwise_arguments(n, columns), calls);
}

// Columns of each operator; all of them if that is one.
size_t column_block(const OperatorNode& n) {
  const ChannelsOf channels = channels_of(n);
  const GraphValue& filter = n.in(1);
  const bool is_transposed = (n.node.flags & XNN_FLAG_TRANSPOSE_WEIGHTS) != 0;
  if (is_transposed || filter.is_converted() || n.weights == nullptr ||
      n.shape(0).elements() / channels.in < kLeastRows ||
      filter_bytes(n, channels.out) <= kCachedWeights) {
    return channels.out;
  }
  const size_t parts = divide_up(filter_bytes(n, channels.out), kCachedWeights);
  return std::min(divide_up(divide_up(channels.out, parts), kColumnStep) * kColumnStep,
                  channels.out);
}

xnn_status make_fully_connected(const OperatorNode& n, std::vector<OperatorCalls>* calls) {
  if (has_other_weights(n)) {
    return add_dynamic(n, EDGEWISE_XNN_OPERATOR(dynamic_fully_connected_nc_f32), calls);
  }
  const size_t all = channels_of(n).out, block = column_block(n);
  for (Columns columns; columns.first < all; columns.first += block) {
    columns.count = std::min(block, all - columns.first);
    if (block < all) {
      n.weights->choose_part(n.constants[1], filter_at(n, columns).data,
                             filter_bytes(n, columns.count));
    }
    const xnn_status status = make_columns(n, columns, calls);
    if (status != xnn_status_success) return status;
  }
  return xnn_status_success;
}

xnn_status make_convolution(const OperatorNode& n, std::vector<OperatorCalls>* calls) {
  const Columns columns{0, channels_of(n).out};
  const T in = n.in().type, filter = n.in(1).type, out = n.out().type;
  EDGEWISE_ADD_COMMON(convolution2d_nhwc)
  return add(n, columns, EDGEWISE_XNN_OPERATOR(convolution2d_nhwc_qd8_f16_qc8w),
             channelwise_arguments(n, columns), calls);
}

xnn_status make_deconvolution(const OperatorNode& n, std::vector<OperatorCalls>* calls) {
  const Columns columns{0, channels_of(n).out};
  const T in = n.in().type, filter = n.in(1).type, out = n.out().type;
  EDGEWISE_ADD_COMMON(deconvolution2d_nhwc)
  return xnn_status_unsupported_parameter;
}

}  // namespace

xnn_status make_filtered(const OperatorNode& n, std::vector<OperatorCalls>* calls) {
  if (n.node.kind == NodeKind::kFullyConnected) return make_fully_connected(n, calls);
  if (n.node.kind == NodeKind::kConvTranspose2d) return make_deconvolution(n, calls);
  return make_convolution(n, calls);
}

}  // namespace edgewise::xnnpack
