// GEMV: matrix products of one row, such as a language model's query, key and value.
//
// Threads multiply one row with a matrix in microseconds, most of which they wait for memory. What
// XNNPACK does around that, and waiting for the last thread after each product, counts. XNNPACK as
// edgewise builds it (cmake/xnnpack_gemv.h) can tell what it runs for such a part of a
// program: its GEMVs run as one loop, and next time without XNNPACK's walk through its nodes.
#pragma once

#include <memory>

#include "backends/xnnpack/graph.h"
#include "backends/xnnpack/program_state.h"
#include "core/memory.h"
#include "xnnpack.h"

extern "C" struct edgewise_gemv_recording;

namespace edgewise::xnnpack {

class RecordedGemv {
 public:
  // For a runtime of `graph`. Null if its nodes are not conversions and then GEMVs of one same
  // input, or if XNNPACK is another build, which cannot tell.
  static std::unique_ptr<RecordedGemv> make(const Graph& graph);

  // As xnn_invoke_runtime. The GEMVs begin when all else is done; nothing that they read is
  // written before the last of them is over.
  xnn_status run(xnn_runtime_t runtime, const ProgramState& state);

  // How often XNNPACK was not needed. Of this thread; for tests.
  static size_t repeats();

 private:
  RecordedGemv() = default;

  MemoryBlock memory_;
  edgewise_gemv_recording* recorded_ = nullptr;
  uint64_t recorded_for_ = 0;  // ProgramState::plans()
};

}  // namespace edgewise::xnnpack
