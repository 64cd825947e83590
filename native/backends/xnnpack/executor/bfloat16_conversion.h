// Conversions between bfloat16 and float32, which XNNPACK does not have.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/xnnpack/executor/step.h"
#include "backends/xnnpack/program_state.h"

namespace edgewise::xnnpack {

// Whether `node` converts the one to the other.
bool is_bfloat16_conversion(const Graph& graph, const GraphNode& node);

class Bfloat16Conversion final : public Step {
 public:
  // `node` must be such a conversion. `state` must outlive it.
  static Result<std::unique_ptr<Step>> make(const Graph& graph, const GraphNode& node,
                                            ProgramState& state);

  const std::vector<uint32_t>& reads() const override { return node_.inputs; }
  const std::vector<uint32_t>& writes() const override { return node_.outputs; }
  Status reshape(const std::vector<Shape>& shapes) override;
  Status set_pointers(std::span<void* const> addresses, const Scratch& scratch) override;
  Status run() override;
  std::string name() const override { return "edgewise Conversion bfloat16"; }

 private:
  Bfloat16Conversion(const Graph& graph, const GraphNode& node, ProgramState& state);

  const GraphNode& node_;
  const bool is_to_float_;
  const pthreadpool_t threads_;
  size_t count_ = 0;
  const void* input_ = nullptr;
  void* output_ = nullptr;
};

}  // namespace edgewise::xnnpack
