// Attention as files spell it: heads transposed to the front of queries, keys and values, a batch
// matrix product, softmax, another product, heads transposed back.
//
// Here a block of queries' scores stays in a core's cache from the first product to the second,
// and heads are read and written where they lie.
#pragma once

#include <memory>
#include <optional>

#include "backends/xnnpack/executor/float_kernels.h"
#include "backends/xnnpack/executor/fused_kernel.h"
#include "backends/xnnpack/executor/linear_nodes.h"
#include "backends/xnnpack/program_state.h"

namespace edgewise::xnnpack {

// A value with heads: batch, heads and tokens in any order, then the depth of a head.
struct HeadsValue {
  uint32_t value = kNone;
  size_t batch_axis = 0, head_axis = 0, token_axis = 0;
};

struct AttentionNodes {
  std::vector<size_t> nodes;  // of the graph, ascending
  HeadsValue queries, keys, values, output;
};

// The same with the sizes of a run. Strides in floats.
struct Heads {
  size_t batch = 0, heads = 0, tokens = 0, depth = 0;
  size_t batch_stride = 0, head_stride = 0, token_stride = 0;

  size_t at(size_t item, size_t head, size_t token) const {
    return item * batch_stride + head * head_stride + token * token_stride;
  }
};

// `softmax`: index of a Softmax. Nothing if it is no such attention, of fp32.
std::optional<AttentionNodes> attention_nodes(const Graph& graph, const Readers& readers,
                                              size_t softmax);

// Null if the kernel can run `nodes` with such shapes, and is faster than XNNPACK; else what it
// asks for.
const char* attention_rule(const std::vector<Shape>& shapes, const AttentionNodes& nodes,
                           const FloatKernels& kernels);

class FusedAttention final : public FusedKernel {
 public:
  // `state` must outlive it.
  static Result<std::unique_ptr<Step>> make(const AttentionNodes& nodes,
                                            const FloatKernels& kernels, ProgramState& state);

  bool can_take(const std::vector<Shape>& shapes) const override;
  Status reshape(const std::vector<Shape>& shapes) override;
  size_t thread_scratch_bytes() const override;
  Status set_pointers(std::span<void* const> addresses, const Scratch& scratch) override;
  Status run() override;

 private:
  FusedAttention(const AttentionNodes& nodes, const FloatKernels& kernels, ProgramState& state)
      : FusedKernel("Attention", kernels, state,
                    {nodes.queries.value, nodes.keys.value, nodes.values.value},
                    {nodes.output.value}),
        nodes_(nodes) {}
  // Where the first value of a head lies, and how far apart values of columns and tokens are.
  struct ValuePanels {
    const float* first = nullptr;
    size_t column_stride = 0, token_stride = 0;
  };

  size_t floats_per_thread() const;
  // Queries [from, to) of one head.
  void run_head(size_t item, size_t head, size_t from, size_t to, float* scratch) const;
  void run_rows(const float* queries, size_t rows, const float* keys, const ValuePanels& values,
                float* scores, float* output) const;

  const AttentionNodes nodes_;
  Heads query_, key_, value_, result_;
  const float* queries_ = nullptr;
  const float* keys_ = nullptr;
  const float* values_ = nullptr;
  float* output_ = nullptr;
  Scratch scratch_;
};

}  // namespace edgewise::xnnpack
