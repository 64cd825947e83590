#include "backends/xnnpack/gemv.h"

#include <algorithm>

// Of cmake/xnnpack_gemv.h; weak, as another build of XNNPACK does not have them.
extern "C" {
__attribute__((weak)) size_t edgewise_gemv_recording_size();
__attribute__((weak)) void edgewise_record_gemv(edgewise_gemv_recording* gemvs);
__attribute__((weak)) void edgewise_run_recorded_gemv(edgewise_gemv_recording* recorded,
                                                      pthreadpool_t threadpool);
__attribute__((weak)) bool edgewise_replay_gemv(edgewise_gemv_recording* recorded,
                                                pthreadpool_t threadpool);
}

namespace edgewise::xnnpack {
namespace {

thread_local size_t repeated = 0;

bool are_gemvs_of_one_input(const Graph& graph) {
  const auto first = std::ranges::find_if(
      graph.nodes, [](const GraphNode& node) { return node.kind != NodeKind::kConvert; });
  return first != graph.nodes.end() &&
         std::all_of(first, graph.nodes.end(), [&](const GraphNode& node) {
           return node.kind == NodeKind::kFullyConnected && node.inputs[0] == first->inputs[0] &&
                  graph.values[node.inputs[1]].is_constant();
         });
}

}  // namespace

std::unique_ptr<RecordedGemv> RecordedGemv::make(const Graph& graph) {
  if (!edgewise_gemv_recording_size || !are_gemvs_of_one_input(graph)) return nullptr;
  auto memory = MemoryBlock::allocate(edgewise_gemv_recording_size());
  if (!memory.ok()) return nullptr;
  std::unique_ptr<RecordedGemv> gemvs(new RecordedGemv);
  gemvs->memory_ = std::move(*memory);
  gemvs->recorded_ = reinterpret_cast<edgewise_gemv_recording*>(gemvs->memory_.data());
  return gemvs;
}

xnn_status RecordedGemv::run(xnn_runtime_t runtime, const ProgramState& state) {
  const pthreadpool_t threadpool = state.threadpool();
  if (recorded_for_ == state.plans() && edgewise_replay_gemv(recorded_, threadpool)) {
    ++repeated;
    return xnn_status_success;
  }
  edgewise_record_gemv(recorded_);
  const xnn_status status = xnn_invoke_runtime(runtime);
  edgewise_record_gemv(nullptr);
  recorded_for_ = 0;
  if (status != xnn_status_success) return status;
  edgewise_run_recorded_gemv(recorded_, threadpool);
  recorded_for_ = state.plans();
  return status;
}

size_t RecordedGemv::repeats() { return repeated; }

}  // namespace edgewise::xnnpack
