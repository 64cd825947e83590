// Fully connected nodes and 1x1 convolutions: a matrix product with constant weights.
#pragma once

#include <memory>

#include "backends/xnnpack/steps/own_step.h"
#include "backends/xnnpack/steps/products.h"

namespace edgewise::xnnpack {

// Whether such a step can run `nodes`, and is faster than XNNPACK.
bool suits_product(const Graph& graph, const std::vector<Shape>& shapes, const LinearNodes& nodes,
                   const FloatKernels& kernels);

class ProductStep final : public OwnStep {
 public:
  // `nodes` must suit it, or at least be nodes that it can run. `state` must outlive it.
  static Result<std::unique_ptr<Step>> make(const Graph& graph, const LinearNodes& nodes,
                                            const FloatKernels& kernels, ProgramState& state);

  Status reshape(const std::vector<Shape>& shapes) override;
  Status set_pointers(std::span<void* const> addresses, std::byte* scratch) override;
  Status run() override;

 private:
  ProductStep(const LinearNodes& nodes, const FloatKernels& kernels, ProgramState& state)
      : OwnStep("Product", kernels, state, {nodes.input, nodes.residual}, nodes.output),
        nodes_(nodes) {}

  const LinearNodes nodes_;
  PackedProduct product_;
  size_t rows_ = 0;
  const float* input_ = nullptr;
  const float* residual_ = nullptr;
  float* output_ = nullptr;
};

}  // namespace edgewise::xnnpack
