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
  auto product = PackedProduct::make(graph, nodes, kernels, state);
  if (!product.ok()) return product.status();
  step->product_ = std::move(*product);
  return std::unique_ptr<Step>(std::move(step));
}

Status ProductStep::reshape(const std::vector<Shape>& shapes) {
  const size_t depth = product_.depth();
  rows_ = shapes[nodes_.input].elements() / depth;
  // Rows that are a multiple of a page apart share a set of the first cache, which has few ways.
  constexpr size_t kPage = 4096;
  constexpr size_t kWays = 8;
  const bool is_crowded = depth * sizeof(float) % kPage == 0;
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
  const size_t columns = product_.columns();
  product_.run(panel, {.rows = part_start(rows_, blocks_, block + 1) - row,
                       .in = input_ + row * product_.depth(),
                       .in_stride = product_.depth(),
                       .out = output_ + row * columns,
                       .out_stride = columns,
                       .residual = residual_ == nullptr ? nullptr : residual_ + row * columns,
                       .index = block,
                       .tiles = blocks_});
}

Status ProductStep::run() {
  const size_t panels = product_.panels();
  const size_t threads = threads_of(threads_);
  // Enough items that a thread which is late does little harm.
  if (panels * product_.panel_bytes() <= kCachedWeights) {
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
