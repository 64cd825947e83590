// Consecutive nodes of a graph in XNNPACK.
#pragma once

#include <memory>

#include "backends/xnnpack/executor/step.h"
#include "backends/xnnpack/program_state.h"
#include "backends/xnnpack/runtime.h"

namespace edgewise::xnnpack {

class XnnpackStep final : public Step {
 public:
  // `nodes`: indices into `graph`, in its order. `is_needed`: values that others read. `state`
  // must outlive it. `is_profiled`: as Runtime::make.
  static Result<std::unique_ptr<Step>> make(const Graph& graph, const std::vector<Shape>& shapes,
                                            std::span<const size_t> nodes,
                                            const std::vector<bool>& is_needed, ProgramState& state,
                                            const NamedData* named_data, bool is_profiled);

  const std::vector<uint32_t>& reads() const override { return reads_; }
  const std::vector<uint32_t>& writes() const override { return writes_; }
  bool can_take(const std::vector<Shape>& shapes) const override;
  Status reshape(const std::vector<Shape>& shapes) override;
  Status set_pointers(std::span<void* const> addresses, std::byte* scratch) override;
  Status run() override { return runtime_->run(); }
  std::vector<ProfilePart> parts() const override { return runtime_->parts(); }
  Status run_profiled(PartTimes& times) override;

 private:
  explicit XnnpackStep(ProgramState& state) : cache_(&state.weights()) {}
  std::vector<Shape> part_of(const std::vector<Shape>& shapes) const;

  Graph graph_;
  std::vector<uint32_t> values_;  // of the whole graph, for each of graph_'s
  std::vector<uint32_t> reads_;
  std::vector<uint32_t> writes_;
  WeightsCache cache_;
  std::unique_ptr<Runtime> runtime_;
  std::vector<OperatorTime> times_;
};

}  // namespace edgewise::xnnpack
