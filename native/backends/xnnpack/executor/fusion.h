// Which nodes of a graph are fused into a kernel, because that is faster than XNNPACK.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "backends/xnnpack/executor/float_kernels.h"
#include "backends/xnnpack/executor/step.h"
#include "backends/xnnpack/program_state.h"

namespace edgewise::xnnpack {

struct Fusion {
  std::vector<size_t> nodes;  // ascending
  std::function<Result<std::unique_ptr<Step>>(ProgramState&)> make;
  // When the step runs: as the last of its nodes would, or as the first one.
  bool runs_first = false;
};

// No node is in two of them. `graph` must outlive the fusions. `kernels`: null for none.
std::vector<Fusion> choose_fusions(const Graph& graph, const std::vector<Shape>& shapes,
                                   const FloatKernels* kernels);

}  // namespace edgewise::xnnpack
