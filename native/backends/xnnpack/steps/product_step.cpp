#include "backends/xnnpack/steps/product_step.h"

#include "backends/xnnpack/steps/panels.h"

namespace edgewise::xnnpack {
namespace {

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
  std::unique_ptr<ProductStep> step(new ProductStep(nodes, kernels, state));
  auto product = PackedProduct::make(graph, nodes, kernels, state);
  if (!product.ok()) return product.status();
  step->product_ = std::move(*product);
  return std::unique_ptr<Step>(std::move(step));
}

Status ProductStep::reshape(const std::vector<Shape>& shapes) {
  rows_ = shapes[nodes_.input].elements() / product_.depth();
  return {};
}

Status ProductStep::set_pointers(std::span<void* const> addresses, std::byte* /*scratch*/) {
  input_ = static_cast<const float*>(addresses[nodes_.input]);
  output_ = static_cast<float*>(addresses[nodes_.output]);
  if (nodes_.residual != kNone) residual_ = static_cast<const float*>(addresses[nodes_.residual]);
  return {};
}

Status ProductStep::run() {
  product_.run_all(threads_, {.rows = rows_,
                              .in = input_,
                              .in_stride = product_.depth(),
                              .out = output_,
                              .out_stride = product_.columns(),
                              .residual = residual_});
  return {};
}

}  // namespace edgewise::xnnpack
