// Fully connected nodes of floats whose weights have 4, 8 or 16 bits, with what follows them. The
// weights stay what they are: they become floats on the way.
#pragma once

#include <memory>

#include "backends/xnnpack/executor/fused_kernel.h"
#include "backends/xnnpack/executor/fused_kernel_weights.h"
#include "backends/xnnpack/executor/linear_nodes.h"
#include "backends/xnnpack/executor/weight_only_kernels.h"

namespace edgewise::xnnpack {

// Whether `filter` is of integers, or of float16 that would be converted.
bool has_narrow_weights(const GraphValue& filter);
// Null if such a kernel can run `nodes`, whose weights are narrow, and is faster than XNNPACK or
// takes less memory; else what it asks for.
const char* weight_only_rule(const Graph& graph, const LinearNodes& nodes,
                             const FloatKernels& kernels);

class FusedWeightOnly final : public FusedKernel {
 public:
  // `state` must outlive it.
  static Result<std::unique_ptr<Step>> make(const Graph& graph, const LinearNodes& nodes,
                                            const FloatKernels& kernels, ProgramState& state);

  bool can_take(const std::vector<Shape>& shapes) const override { return nodes_.can_take(shapes); }
  Status reshape(const std::vector<Shape>& shapes) override;
  size_t thread_scratch_bytes() const override;
  Status set_pointers(std::span<void* const> addresses, const Scratch& scratch) override;
  Status run() override;

 private:
  FusedWeightOnly(const Graph& graph, const LinearNodes& nodes, const FloatKernels& kernels,
                  ProgramState& state);
  bool has_few_rows() const { return rows_ <= WeightOnlyKernels::kFewRows; }
  size_t panels() const;
  WeightOnlyPanel panel_at(size_t panel) const;
  const float* bias_of(size_t panel) const;
  // Rows of the left factor with all of a panel.
  void run_few(size_t panel) const;
  void run_many(size_t panel, size_t first_row, size_t rows, float* floats) const;

  const LinearNodes nodes_;
  const WeightOnlyKernels& weight_only_;
  WeightOnlyPanel form_;  // of each panel
  size_t columns_ = 0;
  size_t scale_bytes_ = 0, panel_bytes_ = 0;
  FusedKernelWeights weights_;  // panels, each with its scales first; then the bias
  size_t rows_ = 0;
  const float* input_ = nullptr;
  const float* residual_ = nullptr;
  float* output_ = nullptr;
  Scratch scratch_;
};

}  // namespace edgewise::xnnpack
