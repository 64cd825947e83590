#include "backends/xnnpack/executor/fused_gemm.h"

#include "backends/xnnpack/executor/panels.h"

namespace edgewise::xnnpack {
namespace {

// Least multiplications, and least rows, of a GEMM that is faster here than in XNNPACK.
constexpr size_t kLeastWork = size_t{1} << 25;
constexpr size_t kLeastRows = 16;
// Below, storing the results takes more time than is gained, unless a residual comes along.
constexpr size_t kLeastDepth = 128;
constexpr size_t kLeastNarrowDepth = 16;

}  // namespace

const char* gemm_rule(const Graph& graph, const std::vector<Shape>& shapes,
                      const LinearNodes& nodes, const FloatKernels& kernels) {
  if (!is_gemm(graph.nodes[nodes.nodes[0]])) return "a product of matrices or 1x1 convolution";
  const size_t depth = shapes[nodes.input].last();
  const size_t columns = shapes[nodes.output].last();
  const size_t rows = shapes[nodes.input].elements() / depth;
  // None that computes many columns which are not there is better than XNNPACK's.
  if (!kernels.gemm_pays) return "cores that start instructions out of order";
  if (computed_columns(kernels, columns) * 8 > columns * 9) {
    return "columns that fill the kernel's panels to eight ninths";
  }
  if (kernels.is_narrow) {
    if (rows < kernels.rows) return "as many rows as the kernel computes at once";
    return depth < kLeastNarrowDepth ? "a depth of 16 or more" : nullptr;
  }
  if (rows < kLeastRows) return "16 rows or more";
  if (rows * depth * columns < kLeastWork) return "34 million products or more";
  if (depth < kLeastDepth && nodes.residual == kNone) return "a depth of 128, or a residual";
  return nullptr;
}

Result<std::unique_ptr<Step>> FusedGemm::make(const Graph& graph, const LinearNodes& nodes,
                                              const FloatKernels& kernels, ProgramState& state) {
  std::unique_ptr<FusedGemm> step(new FusedGemm(nodes, kernels, state));
  auto gemm = PackedGemm::make(graph, nodes, kernels, state);
  if (!gemm.ok()) return gemm.status();
  step->gemm_ = std::move(*gemm);
  return std::unique_ptr<Step>(std::move(step));
}

Status FusedGemm::reshape(const std::vector<Shape>& shapes) {
  rows_ = shapes[nodes_.input].elements() / gemm_.depth();
  return {};
}

Status FusedGemm::set_pointers(std::span<void* const> addresses, std::byte* /*scratch*/) {
  input_ = static_cast<const float*>(addresses[nodes_.input]);
  output_ = static_cast<float*>(addresses[nodes_.output]);
  if (nodes_.residual != kNone) residual_ = static_cast<const float*>(addresses[nodes_.residual]);
  return {};
}

Status FusedGemm::run() {
  gemm_.run_all(threads_, {.rows = rows_,
                           .in = input_,
                           .in_stride = gemm_.depth(),
                           .out = output_,
                           .out_stride = gemm_.columns(),
                           .residual = residual_});
  return {};
}

}  // namespace edgewise::xnnpack
