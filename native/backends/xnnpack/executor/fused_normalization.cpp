#include "backends/xnnpack/executor/fused_normalization.h"

#include <algorithm>

#include "backends/xnnpack/executor/elementwise_nodes.h"
#include "backends/xnnpack/executor/parallel.h"

namespace edgewise::xnnpack {

const char* normalization_rule(const std::vector<Shape>& shapes, const NormalizationNodes& nodes) {
  // Smaller ones are parts of larger groups.
  return shapes[nodes.input].elements() > kMostElementwise ? nullptr : "more than 16384 elements";
}

FusedNormalization::FusedNormalization(const NormalizationNodes& nodes, ConstantData constants,
                                       const FloatKernels& kernels, ProgramState& state)
    : FusedKernel("Normalization", kernels, state, {nodes.input}, {nodes.output}),
      nodes_(nodes),
      constants_(std::move(constants)),
      all_(nodes.numbers) {
  all_.weight = static_cast<const float*>(constants_.addresses[0]);
  all_.bias = static_cast<const float*>(constants_.addresses[1]);
}

Result<std::unique_ptr<Step>> FusedNormalization::make(const Graph& graph,
                                                       const NormalizationNodes& nodes,
                                                       const FloatKernels& kernels,
                                                       ProgramState& state) {
  const uint32_t values[] = {nodes.weight, nodes.bias};
  auto constants = ConstantData::make(graph, values);
  if (!constants.ok()) return constants.status();
  return std::unique_ptr<Step>(
      new FusedNormalization(nodes, std::move(*constants), kernels, state));
}

Status FusedNormalization::reshape(const std::vector<Shape>& shapes) {
  all_.depth = shapes[nodes_.input].last();
  all_.rows = shapes[nodes_.input].elements() / all_.depth;
  return {};
}

Status FusedNormalization::set_pointers(std::span<void* const> addresses, const Scratch&) {
  all_.in = static_cast<const float*>(addresses[nodes_.input]);
  all_.out = static_cast<float*>(addresses[nodes_.output]);
  return {};
}

Status FusedNormalization::run() {
  constexpr size_t kLeastPart = 8192;  // elements that are worth a thread
  const size_t parts = std::clamp<size_t>(all_.rows * all_.depth / kLeastPart, 1,
                                          std::min(all_.rows, 8 * threads_of(threads_)));
  parallel_for(threads_, parts, [&](size_t part, size_t) {
    const size_t start = part_start(all_.rows, parts, part);
    Normalization some = all_;
    some.in += start * all_.depth;
    some.out += start * all_.depth;
    some.rows = part_start(all_.rows, parts, part + 1) - start;
    kernels_.normalize(some);
  });
  return {};
}

}  // namespace edgewise::xnnpack
