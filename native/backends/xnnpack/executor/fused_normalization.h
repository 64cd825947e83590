// Layer and RMS norms as files spell them: means by products with a constant row, the difference,
// its square, the inverse of a root, products with that and the weights, and the bias.
//
// Here a row stays in the first cache from the mean to the result.
#pragma once

#include <memory>
#include <optional>

#include "backends/xnnpack/constant_data.h"
#include "backends/xnnpack/executor/float_kernels.h"
#include "backends/xnnpack/executor/fused_kernel.h"
#include "backends/xnnpack/executor/linear_nodes.h"
#include "backends/xnnpack/program_state.h"

namespace edgewise::xnnpack {

struct NormalizationNodes {
  std::vector<size_t> nodes;  // of the graph, ascending
  uint32_t input = kNone;
  uint32_t output = kNone;
  Normalization numbers;
  uint32_t weight = kNone;  // constants, with a number for each of a row's; kNone: none
  uint32_t bias = kNone;
};

// `root`: index of a ReciprocalSquareRoot. Nothing if it belongs to no norm of fp32.
std::optional<NormalizationNodes> normalization_nodes(const Graph& graph,
                                                      const std::vector<Shape>& shapes,
                                                      const Readers& readers, size_t root);

// Null if the kernel is worth a step of its own; else what it asks for.
const char* normalization_rule(const std::vector<Shape>& shapes, const NormalizationNodes& nodes);

class FusedNormalization final : public FusedKernel {
 public:
  // `graph` and `state` must outlive it.
  static Result<std::unique_ptr<Step>> make(const Graph& graph, const NormalizationNodes& nodes,
                                            const FloatKernels& kernels, ProgramState& state);

  bool may_overwrite(uint32_t input) const override { return input == nodes_.input; }
  Status reshape(const std::vector<Shape>& shapes) override;
  Status set_pointers(std::span<void* const> addresses, const Scratch& scratch) override;
  Status run() override;

 private:
  FusedNormalization(const NormalizationNodes& nodes, ConstantData constants,
                     const FloatKernels& kernels, ProgramState& state);

  const NormalizationNodes nodes_;
  const ConstantData constants_;
  Normalization all_;
};

}  // namespace edgewise::xnnpack
