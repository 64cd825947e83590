// Fully connected nodes with weights of 4 or 8 bits that read one input, whose rows are quantized
// at run time: a language model's query, key and value, say. Quantizing, and all of their products.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "backends/xnnpack/executor/fused_kernel.h"
#include "backends/xnnpack/executor/fused_kernel_weights.h"
#include "backends/xnnpack/executor/linear_nodes.h"
#include "backends/xnnpack/executor/row_gemm_kernels.h"

namespace edgewise::xnnpack {

struct RowGemmNodes {
  std::vector<size_t> nodes;  // the conversion, then those that read it
  uint32_t input = kNone;
  std::vector<uint32_t> outputs;
  const RowGemmKernels* kernels = nullptr;
};

// The conversion `node` with all that reads it; nothing if one of these is another kind of node, or
// has weights that no kernels take, or others than those of the first.
std::optional<RowGemmNodes> row_gemm_nodes(const Graph& graph, const Readers& readers, size_t node);

class FusedRowGemm final : public FusedKernelOf<RowGemmKernels> {
 public:
  // `state` must outlive it.
  static Result<std::unique_ptr<Step>> make(const Graph& graph, const RowGemmNodes& nodes,
                                            const RowGemmKernels& kernels, ProgramState& state);

  Status reshape(const std::vector<Shape>& shapes) override;
  size_t scratch_bytes() const override;
  size_t thread_scratch_bytes() const override;
  Status set_pointers(std::span<void* const> addresses, const Scratch& scratch) override;
  Status run() override;

 private:
  struct Gemm {
    FusedKernelWeights weights;  // panel by panel
    DataType type = DataType::kInvalid;
    size_t block = 0, columns = 0;
    size_t panel_bytes = 0;
    size_t end = 0;  // of its panels, among those of all
    float min = 0, max = 0;
    float* output = nullptr;
  };

  FusedRowGemm(const RowGemmNodes& nodes, const RowGemmKernels& kernels, ProgramState& state)
      : FusedKernelOf("row GEMM", kernels, state, {nodes.input}, nodes.outputs) {}
  // Rows that are quantized together, and where.
  struct Part {
    size_t first, count;
    std::byte* quantized;
  };
  size_t part_bytes() const;
  void quantize(const Part& part, size_t row) const;
  void multiply(const Part& part, size_t panel, bool is_cached) const;

  std::vector<Gemm> gemms_;
  size_t depth_ = 0, rows_ = 0;
  size_t all_bytes_ = 0;  // of all weights
  size_t parts_ = 1;      // of rows; several: a thread quantizes and multiplies one after the other
  const float* input_ = nullptr;
  Scratch scratch_;  // for a part, or, of several, one of each thread
};

}  // namespace edgewise::xnnpack
