// A tensor with a part of it replaced: slices of it around the part, concatenated. If nobody reads
// the tensor afterwards, the part is all that is copied.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/xnnpack/executor/linear_nodes.h"
#include "backends/xnnpack/executor/step.h"
#include "backends/xnnpack/program_state.h"

namespace edgewise::xnnpack {

struct UpdateNodes {
  std::vector<size_t> nodes;  // the slices, then the concatenation
  uint32_t tensor = kNone, part = kNone, out = kNone;
  size_t axis = 0;
  size_t start = 0;  // of the part, along the axis
};

// Nothing if `node`, a concatenation, is not one of a part and slices of one tensor that are read
// by it alone, each where it was in the tensor.
std::optional<UpdateNodes> update_nodes(const Graph& graph, const std::vector<Shape>& shapes,
                                        const Readers& readers, const std::vector<bool>& is_taken,
                                        size_t node);

class FusedUpdate final : public Step {
 public:
  // `state` must outlive it.
  static Result<std::unique_ptr<Step>> make(const Graph& graph, const std::vector<Shape>& shapes,
                                            const UpdateNodes& nodes, ProgramState& state);

  const std::vector<uint32_t>& reads() const override { return reads_; }
  const std::vector<uint32_t>& writes() const override { return writes_; }
  bool may_overwrite(uint32_t input) const override { return input == nodes_.tensor; }
  bool can_take(const std::vector<Shape>& shapes) const override;
  Status reshape(const std::vector<Shape>& shapes) override;
  Status set_pointers(std::span<void* const> addresses, const Scratch& scratch) override;
  Status run() override;
  std::string name() const override { return "edgewise Update"; }

 private:
  FusedUpdate(const Graph& graph, const std::vector<Shape>& shapes, const UpdateNodes& nodes,
              ProgramState& state);

  const UpdateNodes nodes_;
  const std::vector<uint32_t> reads_, writes_;
  const size_t element_bytes_;
  const size_t size_, part_size_;  // along the axis
  const pthreadpool_t threads_;
  // Of each of `count_` runs: bytes of the tensor's, of the part's, and where this begins.
  size_t count_ = 0, row_ = 0, part_row_ = 0, offset_ = 0;
  const std::byte* tensor_ = nullptr;
  const std::byte* part_ = nullptr;
  std::byte* output_ = nullptr;
};

}  // namespace edgewise::xnnpack
