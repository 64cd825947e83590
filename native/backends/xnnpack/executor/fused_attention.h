// Attention as files spell it: a batch matrix product of queries and keys, to which a mask may be
// added, softmax, another product, with heads transposed to the front before and back after it.
//
// Here a block of queries' scores stays in a core's cache from the first product to the second,
// heads are read and written where they lie, and keys are left out that the mask hides from a whole
// block: those of padding, or behind the queries of a causal mask. What these keys and values hold
// does not count, NaN neither.
#pragma once

#include <memory>
#include <optional>

#include "backends/xnnpack/constant_data.h"
#include "backends/xnnpack/executor/float_kernels.h"
#include "backends/xnnpack/executor/fused_kernel.h"
#include "backends/xnnpack/executor/linear_nodes.h"
#include "backends/xnnpack/program_state.h"

namespace edgewise::xnnpack {

// A value with heads, in any order of axes. Only of keys may the depth of a head not be the last.
struct HeadsValue {
  static constexpr size_t kNoAxis = static_cast<size_t>(-1);
  uint32_t value = kNone;
  size_t batch_axis = kNoAxis;  // of three axes there is none
  size_t head_axis = 0, token_axis = 0, depth_axis = 0;
};

struct AttentionNodes {
  std::vector<size_t> nodes;  // of the graph, ascending
  HeadsValue queries, keys, values, output;
  uint32_t mask = kNone;  // added to the scores
};

// The same with the sizes of a run. Strides in floats.
struct Heads {
  size_t batch = 0, heads = 0, tokens = 0, depth = 0;
  size_t batch_stride = 0, head_stride = 0, token_stride = 0, depth_stride = 0;

  size_t at(size_t item, size_t head, size_t token) const {
    return item * batch_stride + head * head_stride + token * token_stride;
  }
};

// `softmax`: index of a Softmax. Nothing if it is no such attention, of fp32.
std::optional<AttentionNodes> attention_nodes(const Graph& graph, const std::vector<Shape>& shapes,
                                              const Readers& readers, size_t softmax);

// Null if the kernel can run `nodes` with such shapes, and is faster than XNNPACK; else what it
// asks for.
const char* attention_rule(const std::vector<Shape>& shapes, const AttentionNodes& nodes,
                           const FloatKernels& kernels);

class FusedAttention final : public FusedKernel {
 public:
  // `graph` and `state` must outlive it.
  static Result<std::unique_ptr<Step>> make(const Graph& graph, const AttentionNodes& nodes,
                                            const FloatKernels& kernels, ProgramState& state);

  bool can_take(const std::vector<Shape>& shapes) const override;
  Status reshape(const std::vector<Shape>& shapes) override;
  size_t thread_scratch_bytes() const override;
  Status set_pointers(std::span<void* const> addresses, const Scratch& scratch) override;
  Status run() override;

 private:
  FusedAttention(const AttentionNodes& nodes, bool has_constant_mask, const FloatKernels& kernels,
                 ProgramState& state)
      : FusedKernel("Attention", kernels, state,
                    {nodes.queries.value, nodes.keys.value, nodes.values.value,
                     has_constant_mask ? kNone : nodes.mask},
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
  // `mask`: of the first row; null: none.
  void run_rows(const float* queries, size_t rows, const float* keys, const ValuePanels& values,
                const float* mask, float* scores, float* output) const;

  const AttentionNodes nodes_;
  ConstantData constant_mask_;
  Heads query_, key_, value_, result_;
  Heads mask_strides_;
  const float* mask_ = nullptr;
  const float* queries_ = nullptr;
  const float* keys_ = nullptr;
  const float* values_ = nullptr;
  float* output_ = nullptr;
  Scratch scratch_;
};

}  // namespace edgewise::xnnpack
