// Fully connected nodes with 4-bit weights in blocks that read one input, which is quantized at run
// time: a language model's query, key and value, say. Quantizing, and all of their products.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "backends/xnnpack/executor/fused_kernel.h"
#include "backends/xnnpack/executor/fused_kernel_weights.h"
#include "backends/xnnpack/executor/linear_nodes.h"
#include "backends/xnnpack/executor/qb4_kernels.h"

namespace edgewise::xnnpack {

struct Qb4Nodes {
  std::vector<size_t> nodes;  // the conversion, then those that read it
  uint32_t input = kNone;
  std::vector<uint32_t> outputs;
};

// The conversion `node` with all that reads it; nothing if one of these is another kind of node, or
// has blocks of another length than the kernels take.
std::optional<Qb4Nodes> qb4_nodes(const Graph& graph, const Readers& readers, size_t node,
                                  const Qb4Kernels& kernels);

class FusedQb4Gemm final : public FusedKernelOf<Qb4Kernels> {
 public:
  // `state` must outlive it.
  static Result<std::unique_ptr<Step>> make(const Graph& graph, const Qb4Nodes& nodes,
                                            const Qb4Kernels& kernels, ProgramState& state);

  Status reshape(const std::vector<Shape>& shapes) override;
  size_t scratch_bytes() const override;
  Status set_pointers(std::span<void* const> addresses, std::byte* scratch) override;
  Status run() override;

 private:
  struct Gemm {
    FusedKernelWeights weights;  // panel by panel
    size_t block = 0, columns = 0;
    size_t panel_bytes = 0;
    size_t end = 0;  // of its panels, among those of all
    float min = 0, max = 0;
    float* output = nullptr;
  };

  FusedQb4Gemm(const Qb4Nodes& nodes, const Qb4Kernels& kernels, ProgramState& state)
      : FusedKernelOf("qb4 GEMM", kernels, state, {nodes.input}, nodes.outputs) {}
  void run_panel(const Gemm& gemm, size_t panel, bool is_cached) const;

  std::vector<Gemm> gemms_;
  size_t depth_ = 0, rows_ = 0;
  size_t all_bytes_ = 0;  // of all weights
  const float* input_ = nullptr;
  std::byte* quantized_ = nullptr;
};

}  // namespace edgewise::xnnpack
