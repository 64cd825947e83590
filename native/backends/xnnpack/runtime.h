// A runtime of XNNPACK's for a Graph. All of it is used under the program state's mutex.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backends/xnnpack/build.h"
#include "backends/xnnpack/constant_data.h"
#include "backends/xnnpack/gemv.h"
#include "backends/xnnpack/operator_clock.h"
#include "backends/xnnpack/program_state.h"
#include "edgewise/profile.h"

namespace edgewise::xnnpack {

class Runtime {
 public:
  // `graph`, `state` and `cache` must outlive it; no other runtime may use `cache`.
  // Constants that were packed are released from `named_data` (may be null) one after the other.
  // `is_profiled`: for parts() and run_profiled(); reads XNNPACK's clock for each operator.
  static Result<std::unique_ptr<Runtime>> make(const Graph& graph, const std::vector<Shape>& shapes,
                                               ProgramState& state, WeightsCache& cache,
                                               const NamedData* named_data = nullptr,
                                               bool is_profiled = false);

  // Whether reshape() can go to `shapes`. XNNPACK keeps its memory plan when shapes change unless
  // a tensor needs more bytes than ever before, and then overlooks two things: parameters of
  // values that are quantized at run time, which grow with the number of rows, and results that
  // were planned into the memory of an input of the same size. If not, make a new one.
  bool can_take(const std::vector<Shape>& shapes) const;

  // Tells XNNPACK the inputs' shapes and plans anew where it must. XNNPACK must come to the
  // outputs' shapes in `shapes`.
  Status reshape(const std::vector<Shape>& shapes);
  Status set_pointers(std::span<const xnn_external_value> externals);
  Status run();

  // XNNPACK's operators by its own names, with the nodes of the payload that they run.
  std::vector<ProfilePart> parts() const;
  // run(), and when each of parts() began and ended.
  Status run_profiled(std::vector<OperatorTime>* times);

 private:
  struct Delete {
    void operator()(xnn_runtime_t runtime) const { xnn_delete_runtime(runtime); }
  };
  struct Rows {
    uint32_t value;
    size_t bytes;  // most so far
    size_t rows;   // that there is memory for
  };

  Runtime(const Graph& graph, ProgramState& state) : graph_(graph), state_(state) {}
  Status run_all();  // each operator by XNNPACK
  std::vector<bool> same_sizes(const std::vector<Shape>& shapes) const;

  const Graph& graph_;
  ProgramState& state_;
  std::vector<MemoryBlock> constants_;  // that XNNPACK reads
  std::unique_ptr<xnn_runtime, Delete> runtime_;
  std::vector<bool> planned_same_sizes_;
  std::vector<Rows> rows_;
  size_t operators_ = 0;                // that a profile tells apart
  std::unique_ptr<RecordedGemv> gemv_;  // null: XNNPACK runs all of it
};

}  // namespace edgewise::xnnpack
