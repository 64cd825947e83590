#include "backends/xnnpack/executor/fused_gemm.h"

#include "backends/xnnpack/executor/panels.h"

namespace edgewise::xnnpack {

const char* gemm_rule(const Graph& graph, const std::vector<Shape>& shapes,
                      const LinearNodes& nodes, const FloatKernels& kernels) {
  if (!is_gemm(graph.nodes[nodes.nodes[0]])) return "a product of matrices or 1x1 convolution";
  const size_t depth = shapes[nodes.input].last();
  const size_t columns = shapes[nodes.output].last();
  const size_t rows = shapes[nodes.input].elements() / depth;
  return gemm_sizes_rule(kernels, rows, depth, columns, nodes.residual != kNone);
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

Status FusedGemm::set_pointers(std::span<void* const> addresses, const Scratch&) {
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
