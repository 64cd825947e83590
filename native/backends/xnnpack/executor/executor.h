// A Graph, ready to run: fused kernels and XNNPACK's operators, one after the other.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backends/xnnpack/executor/kernel_table.h"
#include "backends/xnnpack/executor/step.h"
#include "backends/xnnpack/executor/value_memory.h"
#include "backends/xnnpack/program_state.h"
#include "edgewise/operation.h"

namespace edgewise::xnnpack {

// All of it is used under the program state's mutex.
class Executor {
 public:
  // `graph` and `state` must outlive it. `graph` must have passed all checks, and `shapes` be
  // what infer_shapes made. `kernels`: of fused kernels; null: none.
  // `named_data`: what packed constants are released from, if given.
  static Result<std::unique_ptr<Executor>> make(const Graph& graph,
                                                const std::vector<Shape>& shapes,
                                                const FloatKernels* kernels, ProgramState& state,
                                                const NamedData* named_data = nullptr);

  // Whether reshape() can go to `shapes`. If not, make a new one.
  bool can_take(const std::vector<Shape>& shapes) const;
  Status reshape(const std::vector<Shape>& shapes);
  // What it runs, by kernels that were chosen when it was made, for `shapes`.
  std::vector<DelegateOperation> operations(const std::vector<Shape>& shapes) const;
  // Addresses of the graph's inputs and outputs, by value; others are not looked at.
  Status set_pointers(std::span<void* const> addresses);
  Status run();
  // What run_profiled() does by itself, so that it need not while clocks run.
  void prepare_profile();
  Status run_profiled(RunProfile& profile);

 private:
  struct Alias {
    uint32_t value;  // lies where `of` does
    uint32_t of;
  };

  Executor(const Graph& graph, ProgramState& state) : graph_(graph), state_(state) {}
  // What a step was made of.
  struct Origin {
    std::vector<size_t> nodes;
    std::vector<RefusedKernel> refused;
    bool is_fused = false;
  };

  void find_lifetimes();
  // Each thread's scratch memory, the values between steps, and what scratch memory steps share.
  Result<std::byte*> memory();
  Status set_all_pointers();
  Status follow_memory();

  const Graph& graph_;
  ProgramState& state_;
  std::vector<std::unique_ptr<Step>> steps_;
  std::vector<Origin> origins_;    // of each step
  std::vector<Alias> aliases_;     // in the graph's order
  std::vector<Lifetime> between_;  // values that pass from step to step
  size_t between_bytes_ = 0;
  size_t scratch_bytes_ = 0;
  size_t thread_stride_ = 0;           // of each thread's own scratch memory
  std::vector<void*> addresses_;       // by value
  const std::byte* memory_ = nullptr;  // that the steps' pointers are for
  ProfileParts profile_parts_;         // of all steps; null before prepare_profile()
};

}  // namespace edgewise::xnnpack
