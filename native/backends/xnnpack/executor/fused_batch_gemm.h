// Batch matrix multiplication of two computed factors: a GEMM for each matrix of the batch.
#pragma once

#include <memory>

#include "backends/xnnpack/executor/fused_kernel.h"

namespace edgewise::xnnpack {

// Null if such a kernel can run `node`, and is faster than XNNPACK; else what it asks for.
const char* batch_gemm_rule(const Graph& graph, const std::vector<Shape>& shapes,
                            const GraphNode& node, const FloatKernels& kernels);

class FusedBatchGemm final : public FusedKernel {
 public:
  // `node` must suit it, or at least be one that it can run. `state` must outlive it.
  static Result<std::unique_ptr<Step>> make(const GraphNode& node, const FloatKernels& kernels,
                                            ProgramState& state);

  bool can_take(const std::vector<Shape>& shapes) const override;
  Status reshape(const std::vector<Shape>& shapes) override;
  size_t thread_scratch_bytes() const override;
  Status set_pointers(std::span<void* const> addresses, const Scratch& scratch) override;
  Status run() override;

 private:
  FusedBatchGemm(const GraphNode& node, const FloatKernels& kernels, ProgramState& state)
      : FusedKernel("Batch GEMM", kernels, state, {node.inputs[0], node.inputs[1]},
                    {node.outputs[0]}),
        node_(node) {}
  size_t packed_floats() const;
  // Rows [from, to) of one matrix of the results.
  void run_rows(size_t matrix, size_t from, size_t to, float* packed) const;

  const GraphNode& node_;
  size_t matrices_ = 0;
  size_t rows_ = 0, depth_ = 0, columns_ = 0;
  const float* left_ = nullptr;
  const float* right_ = nullptr;
  float* output_ = nullptr;
  Scratch scratch_;
};

}  // namespace edgewise::xnnpack
