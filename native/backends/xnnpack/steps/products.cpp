#include "backends/xnnpack/steps/products.h"

#include <algorithm>

#include "backends/xnnpack/allocator.h"
#include "backends/xnnpack/steps/panels.h"

namespace edgewise::xnnpack {

bool is_product(const GraphNode& node) {
  const Window& w = node.window;
  if (node.kind == NodeKind::kFullyConnected) {
    return (node.flags & ~uint32_t{XNN_FLAG_TRANSPOSE_WEIGHTS}) == 0;
  }
  return node.kind == NodeKind::kConv2d && node.flags == 0 && w.groups == 1 && w.kernel[0] == 1 &&
         w.kernel[1] == 1 && w.stride[0] == 1 && w.stride[1] == 1 &&
         (w.pad_top | w.pad_right | w.pad_bottom | w.pad_left) == 0;
}

Result<PackedProduct> PackedProduct::make(const Graph& graph, const LinearNodes& nodes,
                                          const FloatKernels& kernels, ProgramState& state) {
  PackedProduct result;
  const Shape& filter = graph.values[nodes.filter].shape;
  const bool is_transposed = (graph.nodes[nodes.nodes[0]].flags & XNN_FLAG_TRANSPOSE_WEIGHTS) != 0;
  const size_t depth = is_transposed ? filter[0] : filter.last();
  const size_t columns = filter.elements() / depth;
  const size_t padded = padded_columns(kernels, columns);
  const std::string form = std::string("product ") + kernels.name + " " + std::to_string(depth) +
                           " " + std::to_string(columns) + (is_transposed ? " transposed" : "");
  auto weights =
      StepWeights::make(graph, nodes.filter, nodes.bias, (depth + 1) * padded, form, state,
                        [&](const float* from, const float* bias, float* packed) {
                          pack_panels(kernels, from, depth, columns, is_transposed ? columns : 1,
                                      is_transposed ? 1 : depth, packed, state.threadpool());
                          float* end = packed + depth * padded;
                          std::fill(end, end + padded, 0.0f);
                          if (bias != nullptr) std::copy_n(bias, columns, end);
                        });
  if (!weights.ok()) return weights.status();
  result.kernels_ = &kernels;
  result.weights_ = std::move(*weights);
  result.depth_ = depth;
  result.columns_ = columns;
  result.padded_ = padded;
  result.min_ = nodes.min;
  result.max_ = nodes.max;
  return result;
}

Product PackedProduct::product_of(size_t panel, const RowTile& tile) const {
  const float* weights = weights_.data() + panel * kernels_->columns * depth_;
  const size_t ahead_step = panel_bytes() / (tile.tiles * depth_);
  return {.rows = tile.rows,
          .depth = depth_,
          .a = tile.in,
          .a_stride = tile.in_stride,
          .panel = weights,
          .panel_stride = kernels_->columns,
          .c = tile.out,
          .c_stride = tile.out_stride,
          .ahead = reinterpret_cast<const char*>(weights) + panel_bytes() +
                   ahead_step * depth_ * tile.index,
          .ahead_step = ahead_step};
}

Finish PackedProduct::finish_of(size_t panel) const {
  return {.bias = weights_.data() + padded_ * depth_ + panel * kernels_->columns,
          .min = min_,
          .max = max_};
}

void PackedProduct::run_padded(size_t panel, const RowTile& tile) const {
  kernels_->multiply_finish(product_of(panel, tile), finish_of(panel));
}

void PackedProduct::run(size_t panel, const RowTile& tile) const {
  const size_t first = panel * kernels_->columns;
  const size_t count = std::min(kernels_->columns, columns_ - first);
  Product product = product_of(panel, tile);
  Finish finish = finish_of(panel);
  product.c += first;
  if (tile.residual != nullptr) {
    finish.residual = tile.residual + first;
    finish.residual_stride = tile.out_stride;
  }
  if (count == kernels_->columns) {
    kernels_->multiply_finish(product, finish);
    return;
  }
  // The last panel is wider than the matrix.
  constexpr size_t kMostTile = 14 * 32;
  alignas(kBufferAlignment) float results[kMostTile];
  alignas(kBufferAlignment) float residual[kMostTile] = {};
  float* to = product.c;
  product.c = results;
  product.c_stride = kernels_->columns;
  if (finish.residual != nullptr) {
    for (size_t i = 0; i < tile.rows; ++i) {
      std::copy_n(finish.residual + i * tile.out_stride, count, residual + i * kernels_->columns);
    }
    finish.residual = residual;
    finish.residual_stride = kernels_->columns;
  }
  kernels_->multiply_finish(product, finish);
  for (size_t i = 0; i < tile.rows; ++i) {
    std::copy_n(results + i * kernels_->columns, count, to + i * tile.out_stride);
  }
}

}  // namespace edgewise::xnnpack
