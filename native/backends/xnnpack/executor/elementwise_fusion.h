// Elementwise fusion of small nodes: those that depend on each other run as one step, loop after
// loop on the calling thread.
#pragma once

#include <memory>

#include "backends/xnnpack/executor/elementwise_nodes.h"
#include "backends/xnnpack/executor/step.h"
#include "backends/xnnpack/executor/value_memory.h"
#include "core/memory.h"

namespace edgewise::xnnpack {

class ElementwiseFusion final : public Step {
 public:
  // `nodes`, ascending, have elementwise_loops(). `graph` must outlive it.
  static Result<std::unique_ptr<Step>> make(const Graph& graph, std::vector<size_t> nodes);

  const std::vector<uint32_t>& reads() const override { return reads_; }
  const std::vector<uint32_t>& writes() const override { return writes_; }
  bool can_take(const std::vector<Shape>& shapes) const override;
  Status reshape(const std::vector<Shape>& shapes) override;
  size_t scratch_bytes() const override { return inside_bytes_; }
  Status set_pointers(std::span<void* const> addresses, const Scratch& scratch) override;
  Status run() override;
  std::string name() const override { return "edgewise Elementwise fusion"; }

 private:
  ElementwiseFusion(const Graph& graph, std::vector<size_t> nodes)
      : graph_(graph), nodes_(std::move(nodes)) {}
  void find_values();
  Status copy_constants();

  const Graph& graph_;
  const std::vector<size_t> nodes_;
  std::vector<uint32_t> reads_;
  std::vector<uint32_t> writes_;
  std::vector<Lifetime> inside_;  // values that only this step knows
  std::vector<bool> is_inside_;   // by value
  size_t inside_bytes_ = 0;
  MemoryBlock constants_;
  std::vector<std::byte*> constant_addresses_;  // by value
  std::vector<NodeLoop> planned_;
  std::vector<ElementwiseLoop> loops_;  // ready to run
};

}  // namespace edgewise::xnnpack
