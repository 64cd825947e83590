// Which nodes of a graph run in steps of our own, because that is faster than XNNPACK.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "backends/xnnpack/program_state.h"
#include "backends/xnnpack/steps/float_kernels.h"
#include "backends/xnnpack/steps/step.h"

namespace edgewise::xnnpack {

struct Choice {
  std::vector<size_t> nodes;  // ascending; the step runs in the last one's place
  std::function<Result<std::unique_ptr<Step>>(ProgramState&)> make;
};

// No node is in two of them. `graph` must outlive the choices. `kernels`: null for none.
// `with_small`: small nodes, too, if is_small().
std::vector<Choice> choose_steps(const Graph& graph, const std::vector<Shape>& shapes,
                                 const FloatKernels* kernels, bool with_small = true);

}  // namespace edgewise::xnnpack
