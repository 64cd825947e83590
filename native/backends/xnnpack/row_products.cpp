#include "backends/xnnpack/row_products.h"

#include <algorithm>

// Of cmake/xnnpack_row_products.h; weak, as another build of XNNPACK does not have them.
extern "C" {
__attribute__((weak)) size_t edgewise_row_products_size();
__attribute__((weak)) void edgewise_record_row_products(edgewise_row_products* products);
__attribute__((weak)) void edgewise_run_recorded_products(edgewise_row_products* recorded,
                                                          pthreadpool_t threadpool);
__attribute__((weak)) bool edgewise_run_row_again(edgewise_row_products* recorded,
                                                  pthreadpool_t threadpool);
}

namespace edgewise::xnnpack {
namespace {

thread_local size_t repeated = 0;

bool are_products_of_one_input(const Graph& graph) {
  const auto first = std::ranges::find_if(
      graph.nodes, [](const GraphNode& node) { return node.kind != NodeKind::kConvert; });
  return first != graph.nodes.end() &&
         std::all_of(first, graph.nodes.end(), [&](const GraphNode& node) {
           return node.kind == NodeKind::kFullyConnected && node.inputs[0] == first->inputs[0] &&
                  graph.values[node.inputs[1]].is_constant();
         });
}

}  // namespace

std::unique_ptr<RowProducts> RowProducts::make(const Graph& graph) {
  if (!edgewise_row_products_size || !are_products_of_one_input(graph)) return nullptr;
  auto memory = MemoryBlock::allocate(edgewise_row_products_size());
  if (!memory.ok()) return nullptr;
  std::unique_ptr<RowProducts> products(new RowProducts);
  products->memory_ = std::move(*memory);
  products->recorded_ = reinterpret_cast<edgewise_row_products*>(products->memory_.data());
  return products;
}

xnn_status RowProducts::run(xnn_runtime_t runtime, const ProgramState& state) {
  const pthreadpool_t threadpool = state.threadpool();
  if (recorded_for_ == state.plans() && edgewise_run_row_again(recorded_, threadpool)) {
    ++repeated;
    return xnn_status_success;
  }
  edgewise_record_row_products(recorded_);
  const xnn_status status = xnn_invoke_runtime(runtime);
  edgewise_record_row_products(nullptr);
  recorded_for_ = 0;
  if (status != xnn_status_success) return status;
  edgewise_run_recorded_products(recorded_, threadpool);
  recorded_for_ = state.plans();
  return status;
}

size_t RowProducts::repeats() { return repeated; }

}  // namespace edgewise::xnnpack
