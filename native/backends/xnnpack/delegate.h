// A delegate: a payload's graph, ready to run.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backends/xnnpack/executor/executor.h"
#include "backends/xnnpack/graph.h"
#include "backends/xnnpack/image_entry.h"
#include "backends/xnnpack/program_state.h"
#include "edgewise/backend.h"

namespace edgewise::xnnpack {

class XnnpackDelegate final : public Delegate {
 public:
  static Result<std::unique_ptr<Delegate>> make(const DelegateInit& init,
                                                std::shared_ptr<ProgramState> state);
  ~XnnpackDelegate() override;

  // `arguments` are indexed by the payload's external ids. A tensor's sizes are taken in the
  // order of its memory (dim_order), which is how payloads mean them.
  Status execute(std::span<Value* const> arguments) override { return run(arguments, nullptr); }
  Status prepare_profile() override;
  Status execute_profiled(std::span<Value* const> arguments, RunProfile& profile) override {
    return run(arguments, &profile);
  }
  std::vector<DelegateOperation> operations() override;
  bool reads_within(size_t index) const override;

 private:
  explicit XnnpackDelegate(std::shared_ptr<ProgramState> state);

  Status read_inputs(std::span<Value* const> arguments, bool* is_changed);
  // An entry of this input, or null.
  ImageEntry* entry_of(size_t input);
  Status plan();
  // Makes executor_ the one for sizes like shapes_, which may be null.
  void change_executor();
  // Makes an executor for shapes_, and lets go of the constants that only that needed.
  Status make_executor();
  Status prepare_outputs(std::span<Value* const> arguments);
  void upcast_indices(std::span<Value* const> arguments) const;
  Status run(std::span<Value* const> arguments, RunProfile* profile);
  void run_entries(RunProfile* profile);

  std::shared_ptr<ProgramState> state_;
  const NamedData* named_data_ = nullptr;
  const FloatKernels* kernels_ = nullptr;  // of fused kernels
  size_t max_memory_ = 0;                  // as LoadOptions
  Graph graph_;
  std::unique_ptr<Executor> executor_;
  // Small sizes have steps that others have not (is_small()). A language model goes from a prompt
  // to single tokens and back: the executor that is not in use is kept.
  std::unique_ptr<Executor> other_executor_;
  bool is_for_small_ = false;  // executor_
  std::vector<Shape> shapes_;
  bool is_planned_ = false;
  bool is_set_up_ = false;
  bool is_idle_ = false;  // every output is empty
  // What a profile tells apart beside the executor's parts: planning, then each of entries_. Null
  // until the first profile.
  ProfileParts profile_parts_;
  std::vector<ImageEntry> entries_;
  std::vector<void*> addresses_;  // of inputs and outputs, by value
};

}  // namespace edgewise::xnnpack
