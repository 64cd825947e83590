// Where XNNPACK reads a graph's constants: in the program, or in converted copies.
#pragma once

#include <vector>

#include "backends/xnnpack/graph.h"
#include "core/memory.h"
#include "edgewise/backend.h"

namespace edgewise::xnnpack {

struct ConstantData {
  std::vector<const void*> addresses;  // of each value; null if it is not constant
  std::vector<MemoryBlock> in_place;   // copies that XNNPACK reads whenever it runs
  std::vector<MemoryBlock> packed;     // copies that it reads only when the runtime is made

  static Result<ConstantData> make(const Graph& graph);
};

// Releases the constants of which a runtime that was made has its own form: packed filters and
// biases, converted copies.
void release_constants(const Graph& graph, const NamedData& named_data);

}  // namespace edgewise::xnnpack
