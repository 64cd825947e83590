// Products of one row, such as a language model's query, key and value.
//
// Threads multiply one row with a matrix in microseconds, most of which they wait for memory. What
// XNNPACK does around that, and waiting for the last thread after each product, counts. XNNPACK as
// edgewise builds it (cmake/xnnpack_row_products.h) can tell what it runs for such a part of a
// program: its products run as one loop, and next time without XNNPACK's walk through its nodes.
#pragma once

#include <memory>

#include "backends/xnnpack/graph.h"
#include "backends/xnnpack/program_state.h"
#include "core/memory.h"
#include "xnnpack.h"

extern "C" struct edgewise_row_products;

namespace edgewise::xnnpack {

class RowProducts {
 public:
  // For a runtime of `graph`. Null if its nodes are not conversions and then products of one same
  // input, or if XNNPACK is another build, which cannot tell.
  static std::unique_ptr<RowProducts> make(const Graph& graph);

  // As xnn_invoke_runtime. The products begin when all else is done; nothing that they read is
  // written before the last of them is over.
  xnn_status run(xnn_runtime_t runtime, const ProgramState& state);

  // How often XNNPACK was not needed. Of this thread; for tests.
  static size_t repeats();

 private:
  RowProducts() = default;

  MemoryBlock memory_;
  edgewise_row_products* recorded_ = nullptr;
  uint64_t recorded_for_ = 0;  // ProgramState::plans()
};

}  // namespace edgewise::xnnpack
