// Which kernel runs which nodes of a graph. The rows of a table are tried node by node, in order;
// what no row takes, XNNPACK's operators run.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backends/xnnpack/executor/float_kernels.h"
#include "backends/xnnpack/executor/step.h"
#include "backends/xnnpack/program_state.h"

namespace edgewise::xnnpack {

// Nodes that one kernel of ours runs, because that is faster than XNNPACK.
struct Fusion {
  std::vector<size_t> nodes;  // ascending
  std::function<Result<std::unique_ptr<Step>>(ProgramState&)> make;
  // When the step runs: as the last of its nodes would, or as the first one.
  bool runs_first = false;
};

struct RefusedKernel {
  const char* kernel;
  const char* rule;  // what it asks for
};

struct KernelChoice {
  std::vector<Fusion> fusions;  // no node is in two of them
  // By node: kernels for its kind that were not taken.
  std::vector<std::vector<RefusedKernel>> refused;
};

// `graph` must outlive the fusions. `kernels`: null for none of ours.
KernelChoice choose_kernels(const Graph& graph, const std::vector<Shape>& shapes,
                            const FloatKernels* kernels);

}  // namespace edgewise::xnnpack
