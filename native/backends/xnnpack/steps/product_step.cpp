#include "backends/xnnpack/steps/product_step.h"

#include <algorithm>

#include "backends/xnnpack/steps/panels.h"
#include "backends/xnnpack/steps/parallel.h"

namespace edgewise::xnnpack {
namespace {

// Weights up to this size stay in a core's cache while rows pass by.
constexpr size_t kCachedWeights = 512 * 1024;
// Of a product that is worth its own step, and of its rows.
constexpr size_t kLeastWork = size_t{1} << 25;
constexpr size_t kLeastRows = 16;
// Below, storing the results takes more time than is gained, unless a residual comes along.
constexpr size_t kLeastDepth = 128;

bool is_product(const GraphNode& node) {
  const Window& w = node.window;
  if (node.kind == NodeKind::kFullyConnected) {
    return (node.flags & ~uint32_t{XNN_FLAG_TRANSPOSE_WEIGHTS}) == 0;
  }
  return node.kind == NodeKind::kConv2d && node.flags == 0 && w.groups == 1 && w.kernel[0] == 1 &&
         w.kernel[1] == 1 && w.stride[0] == 1 && w.stride[1] == 1 &&
         (w.pad_top | w.pad_right | w.pad_bottom | w.pad_left) == 0;
}

}  // namespace

bool suits_product(const Graph& graph, const std::vector<Shape>& shapes, const LinearNodes& nodes,
                   const FloatKernels& kernels) {
  if (!is_product(graph.nodes[nodes.nodes[0]])) return false;
  const size_t depth = shapes[nodes.input].last();
  const size_t columns = shapes[nodes.output].last();
  const size_t rows = shapes[nodes.input].elements() / depth;
  // Kernels for narrower vectors are no better than XNNPACK's, nor is one that computes many
  // columns which are not there.
  return kernels.rows > 8 && rows >= kLeastRows && rows * depth * columns >= kLeastWork &&
         (depth >= kLeastDepth || nodes.residual != kNone) &&
         padded_columns(kernels, columns) * 8 <= columns * 9;
}

Result<std::unique_ptr<Step>> ProductStep::make(const Graph& graph, const LinearNodes& nodes,
                                                const FloatKernels& kernels, ProgramState& state) {
  std::unique_ptr<ProductStep> step(new ProductStep(kernels, state.threadpool()));
  step->nodes_ = nodes;
  step->reads_ = {nodes.input};
  if (nodes.residual != kNone) step->reads_.push_back(nodes.residual);
  step->writes_ = {nodes.output};
  const Shape& filter = graph.values[nodes.filter].shape;
  const bool is_transposed = (graph.nodes[nodes.nodes[0]].flags & XNN_FLAG_TRANSPOSE_WEIGHTS) != 0;
  const size_t depth = is_transposed ? filter[0] : filter.last();
  const size_t columns = filter.elements() / depth;
  step->depth_ = depth;
  step->columns_ = columns;
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
  step->weights_ = std::move(*weights);
  return std::unique_ptr<Step>(std::move(step));
}

Status ProductStep::reshape(const std::vector<Shape>& shapes) {
  rows_ = shapes[nodes_.input].elements() / depth_;
  // Rows that are a multiple of a page apart share a set of the first cache, which has few ways.
  constexpr size_t kPage = 4096;
  constexpr size_t kWays = 8;
  const bool is_crowded = depth_ * sizeof(float) % kPage == 0;
  blocks_ = divide_up(rows_, is_crowded ? std::min(kernels_.rows, kWays) : kernels_.rows);
  return {};
}

Status ProductStep::set_pointers(std::span<void* const> addresses, std::byte* /*scratch*/) {
  input_ = static_cast<const float*>(addresses[nodes_.input]);
  output_ = static_cast<float*>(addresses[nodes_.output]);
  if (nodes_.residual != kNone) residual_ = static_cast<const float*>(addresses[nodes_.residual]);
  return {};
}

void ProductStep::run_tile(size_t panel, size_t block) const {
  const size_t row = part_start(rows_, blocks_, block);
  const size_t first = panel * kernels_.columns;
  const float* weights = weights_.data() + first * depth_;
  // While the rows pass by, the next panel comes nearer.
  const size_t panel_bytes = depth_ * kernels_.columns * sizeof(float);
  const size_t ahead_step = panel_bytes / (blocks_ * depth_);
  Product product{
      .rows = part_start(rows_, blocks_, block + 1) - row,
      .depth = depth_,
      .a = input_ + row * depth_,
      .a_stride = depth_,
      .panel = weights,
      .panel_stride = kernels_.columns,
      .c = output_ + row * columns_ + first,
      .c_stride = columns_,
      .ahead = reinterpret_cast<const char*>(weights) + panel_bytes + ahead_step * depth_ * block,
      .ahead_step = ahead_step};
  Finish finish{.bias = weights_.data() + padded_columns(kernels_, columns_) * depth_ + first,
                .residual = residual_ == nullptr ? nullptr : residual_ + row * columns_ + first,
                .residual_stride = columns_,
                .min = nodes_.min,
                .max = nodes_.max};
  const size_t count = std::min(kernels_.columns, columns_ - first);
  if (count == kernels_.columns) {
    kernels_.multiply_finish(product, finish);
    return;
  }
  // The last panel is wider than the matrix.
  constexpr size_t kMostTile = 14 * 32;
  alignas(kBufferAlignment) float tile[kMostTile];
  alignas(kBufferAlignment) float residual[kMostTile] = {};
  float* to = product.c;
  product.c = tile;
  product.c_stride = kernels_.columns;
  if (finish.residual != nullptr) {
    for (size_t i = 0; i < product.rows; ++i) {
      std::copy_n(finish.residual + i * columns_, count, residual + i * kernels_.columns);
    }
    finish.residual = residual;
    finish.residual_stride = kernels_.columns;
  }
  kernels_.multiply_finish(product, finish);
  for (size_t i = 0; i < product.rows; ++i) {
    std::copy_n(tile + i * kernels_.columns, count, to + i * columns_);
  }
}

Status ProductStep::run() {
  const size_t panels = divide_up(columns_, kernels_.columns);
  const size_t threads = threads_of(threads_);
  // Enough items that a thread which is late does little harm.
  if (panels * kernels_.columns * depth_ * sizeof(float) <= kCachedWeights) {
    const size_t items = std::min(blocks_, divide_up(blocks_, 4 * 8 * threads) * 8 * threads);
    parallel_for(threads_, items, [&](size_t item, size_t) {
      for (size_t block = part_start(blocks_, items, item);
           block < part_start(blocks_, items, item + 1); ++block) {
        for (size_t panel = 0; panel < panels; ++panel) run_tile(panel, block);
      }
    });
    return {};
  }
  const size_t chunks = std::min(blocks_, divide_up(8 * threads, panels));
  parallel_for(threads_, panels * chunks, [&](size_t item, size_t) {
    const size_t chunk = item % chunks;
    for (size_t block = part_start(blocks_, chunks, chunk);
         block < part_start(blocks_, chunks, chunk + 1); ++block) {
      run_tile(item / chunks, block);
    }
  });
  return {};
}

}  // namespace edgewise::xnnpack
