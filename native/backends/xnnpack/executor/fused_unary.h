// A function of one number, of all elements.
#pragma once

#include <memory>

#include "backends/xnnpack/executor/fused_kernel.h"
#include "backends/xnnpack/executor/unary_functions.h"

namespace edgewise::xnnpack {

// Null if such a kernel can run `node`; else what it asks for.
const char* unary_rule(const Graph& graph, const GraphNode& node);

class FusedUnary final : public FusedKernel {
 public:
  // `node` must suit it. `state` must outlive it.
  static Result<std::unique_ptr<Step>> make(const GraphNode& node, const FloatKernels& kernels,
                                            ProgramState& state);

  bool may_overwrite(uint32_t input) const override { return input == node_.inputs[0]; }
  Status reshape(const std::vector<Shape>& shapes) override;
  Status set_pointers(std::span<void* const> addresses, const Scratch& scratch) override;
  Status run() override;

 private:
  FusedUnary(const GraphNode& node, const FloatKernels& kernels, ProgramState& state);

  const GraphNode& node_;
  UnaryFunction function_;
  size_t count_ = 0;
  const float* input_ = nullptr;
  float* output_ = nullptr;
};

}  // namespace edgewise::xnnpack
