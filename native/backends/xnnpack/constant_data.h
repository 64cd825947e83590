// Where a graph's constants are read: in the program, or in converted copies.
#pragma once

#include <span>
#include <vector>

#include "backends/xnnpack/graph.h"
#include "core/memory.h"
#include "edgewise/backend.h"

namespace edgewise::xnnpack {

struct ConstantData {
  std::vector<const void*> addresses;  // of each value; null if it is not constant
  std::vector<MemoryBlock> copies;     // of each value; empty if it is read where it is

  // `values`: of the graph, or kNone.
  static Result<ConstantData> make(const Graph& graph, std::span<const uint32_t> values);
};

// Whether `node` has a packed form of its weights, and reads them only when it is made.
bool packs_weights(const Graph& graph, const GraphNode& node);

// Releases the constants of which an executor that was made has its own form: packed filters and
// biases, converted copies.
void release_constants(const Graph& graph, const NamedData& named_data);

}  // namespace edgewise::xnnpack
