// Fully connected nodes and 1x1 convolutions, with what follows them: a GEMM with constant weights.
#pragma once

#include <memory>

#include "backends/xnnpack/executor/fused_kernel.h"
#include "backends/xnnpack/executor/packed_gemm.h"

namespace edgewise::xnnpack {

// Null if such a kernel can run `nodes`, and is faster than XNNPACK; else what it asks for.
const char* gemm_rule(const Graph& graph, const std::vector<Shape>& shapes,
                      const LinearNodes& nodes, const FloatKernels& kernels);

class FusedGemm final : public FusedKernel {
 public:
  // `nodes` must suit it, or at least be nodes that it can run. `state` must outlive it.
  static Result<std::unique_ptr<Step>> make(const Graph& graph, const LinearNodes& nodes,
                                            const FloatKernels& kernels, ProgramState& state);

  bool can_take(const std::vector<Shape>& shapes) const override { return nodes_.can_take(shapes); }
  Status reshape(const std::vector<Shape>& shapes) override;
  Status set_pointers(std::span<void* const> addresses, const Scratch& scratch) override;
  Status run() override;

 private:
  FusedGemm(const LinearNodes& nodes, const FloatKernels& kernels, ProgramState& state)
      : FusedKernel("GEMM", kernels, state, {nodes.input, nodes.residual}, {nodes.output}),
        nodes_(nodes) {}

  const LinearNodes nodes_;
  PackedGemm gemm_;
  size_t rows_ = 0;
  const float* input_ = nullptr;
  const float* residual_ = nullptr;
  float* output_ = nullptr;
};

}  // namespace edgewise::xnnpack
