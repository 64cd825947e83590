// A node of a graph by XNNPACK's operators, where no kernel of ours runs it: one operator, or
// several one after the other (a concatenation's copies).
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backends/xnnpack/constant_data.h"
#include "backends/xnnpack/executor/step.h"
#include "backends/xnnpack/executor/xnnpack_calls.h"
#include "backends/xnnpack/program_state.h"

namespace edgewise::xnnpack {

struct OperatorDelete {
  void operator()(xnn_operator_t op) const { xnn_delete_operator(op); }
};
using OperatorPtr = std::unique_ptr<xnn_operator, OperatorDelete>;

// What an operator is made for.
struct OperatorNode {
  const Graph& graph;
  const GraphNode& node;
  const std::vector<Shape>& shapes;
  const std::vector<const void*>& constants;  // of each input; null if it is none
  WeightsCache* weights;                      // null: none

  const GraphValue& in(size_t i = 0) const { return graph.values[node.inputs[i]]; }
  const GraphValue& out(size_t i = 0) const { return graph.values[node.outputs[i]]; }
  const Shape& shape(size_t i) const { return shapes[node.inputs[i]]; }
  bool has(size_t i) const { return i < node.inputs.size() && node.inputs[i] != kNone; }
};

// Sizes that an operator is to run for, of the node's inputs and outputs.
struct OperatorSizes {
  const GraphNode& node;
  const std::vector<Shape>& shapes;
  pthreadpool_t threads;
  size_t* workspace;  // bytes, which it sets

  const Shape& in(size_t i = 0) const { return shapes[node.inputs[i]]; }
  const Shape& out() const { return shapes[node.outputs[0]]; }
  // `status`, unless XNNPACK computes another height or width.
  xnn_status checked(xnn_status status, size_t height, size_t width) const {
    const bool is_right = height == out()[1] && width == out()[2];
    return status != xnn_status_success || is_right ? status : xnn_status_invalid_state;
  }
};

// Of any node.
inline constexpr size_t kMostInputs = 5, kMostOutputs = 2;

// Where its inputs and outputs are.
struct OperatorAddresses {
  std::array<Address, kMostInputs> in;
  std::array<Address, kMostOutputs> out;
  RowParams in_params, out_params;  // of the first ones, if these are quantized at run time
  Workspace workspace;
};

struct OperatorCalls {
  const char* name;  // XNNPACK's, as in the names of its functions
  OperatorPtr op;
  std::function<xnn_status(xnn_operator_t, const OperatorSizes&)> reshape;
  std::function<xnn_status(xnn_operator_t, const OperatorAddresses&)> setup;
};

void keep_operator(const char* name, std::vector<OperatorCalls>* calls, xnn_operator_t op,
                   decltype(OperatorCalls::reshape) reshape, decltype(OperatorCalls::setup) setup);

// Adds what `create(&op)` makes to a node's operators; `reshape(op, sizes)` sets its sizes,
// `setup(op, addresses)` its addresses. XNNPACK's status if it cannot be made.
template <typename Create, typename Reshape, typename Setup>
xnn_status add_operator(const char* name, std::vector<OperatorCalls>* calls, Create create,
                        Reshape reshape, Setup setup) {
  xnn_operator_t op = nullptr;
  const xnn_status status = create(&op);
  if (status == xnn_status_success) keep_operator(name, calls, op, reshape, setup);
  return status;
}

// A node's operators, in the order in which they run. XNNPACK's status if one cannot be made.
xnn_status make_operators(const OperatorNode& node, std::vector<OperatorCalls>* calls);
// Those with constant or other weights.
xnn_status make_filtered(const OperatorNode& node, std::vector<OperatorCalls>* calls);
// Attention with scales and a mask, of products and a softmax.
xnn_status make_attention(const OperatorNode& node, std::vector<OperatorCalls>* calls);
// Those that only move elements.
xnn_status make_moving(const OperatorNode& node, std::vector<OperatorCalls>* calls);

class XnnpackOperator final : public Step {
 public:
  // Runs graph.nodes[index]. `graph` and `state` must outlive it. What is packed of the constants
  // is released from `named_data` (may be null).
  static Result<std::unique_ptr<Step>> make(const Graph& graph, const std::vector<Shape>& shapes,
                                            size_t index, ProgramState& state,
                                            const NamedData* named_data);

  const std::vector<uint32_t>& reads() const override { return reads_; }
  const std::vector<uint32_t>& writes() const override { return node_.outputs; }
  bool may_overwrite(uint32_t input) const override;
  bool can_take(const std::vector<Shape>& shapes) const override;
  Status reshape(const std::vector<Shape>& shapes) override;
  size_t scratch_bytes() const override { return std::ranges::max(workspaces_); }
  Status set_pointers(std::span<void* const> addresses, const Scratch& scratch) override;
  Status run() override;
  std::string name() const override;

 private:
  // Who runs it: all threads, or one if it is over before a second one could help.
  enum class Sharing { kUnknown, kOneThread, kAllThreads };

  XnnpackOperator(const Graph& graph, const GraphNode& node, ProgramState& state)
      : graph_(graph), node_(node), threads_(state.threadpool()), weights_(&state.weights()) {}
  size_t kept_size_of(const std::vector<Shape>& shapes) const;
  void choose_sharing();
  Status run_with(pthreadpool_t threads);
  void repeat_last_params() const;

  const Graph& graph_;
  const GraphNode& node_;
  const pthreadpool_t threads_;
  WeightsCache weights_;
  std::vector<MemoryBlock> copies_;     // of constants, converted
  std::vector<const void*> constants_;  // of each input
  std::vector<OperatorCalls> calls_;
  std::vector<uint32_t> reads_;
  std::vector<size_t> workspaces_;  // bytes that each of calls_ needs while it runs
  size_t kept_size_ = 0;  // of the last reshape; 0: there was none, or all sizes may change
  Sharing sharing_ = Sharing::kUnknown;
  size_t work_ = 1;
  double time_of_work_ = 0;  // nanoseconds on one thread; 0: not known
  // Of the first input and output, if they are quantized at run time: from data to parameters.
  size_t in_offset_ = 0, out_offset_ = 0;
  size_t rows_ = 0;  // of the output
  xnn_quantization_params* params_ = nullptr;
};

}  // namespace edgewise::xnnpack
