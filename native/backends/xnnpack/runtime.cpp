#include "backends/xnnpack/runtime.h"

#include <algorithm>

#include "backends/xnnpack/runtime_profile.h"
#include "backends/xnnpack/xnn_error.h"

namespace edgewise::xnnpack {
namespace {

// Bit of XNNPACK's that its public header does not name: no fusion. See fold.h.
constexpr uint32_t kNoFusion = 0x80000000;

size_t rows_of(const GraphValue& value, const Shape& shape) {
  return shape.leading(shape.rank - std::min<size_t>(value.nonbatch_dims, shape.rank));
}

}  // namespace

Result<std::unique_ptr<Runtime>> Runtime::make(const Graph& graph, const std::vector<Shape>& shapes,
                                               ProgramState& state, WeightsCache& cache,
                                               const NamedData* named_data, bool is_profiled) {
  xnn_subgraph_t raw_subgraph = nullptr;
  auto status =
      check_xnn(xnn_create_subgraph(graph.externals, 0, &raw_subgraph), "making a subgraph");
  if (!status.ok()) return status;
  const SubgraphPtr subgraph(raw_subgraph);
  auto constants = ConstantData::make(graph);
  if (!constants.ok()) return constants.status();
  XnnIds ids;
  status = define_values(graph, shapes, constants->addresses, subgraph.get(), &ids);
  if (!status.ok()) return status;
  status = define_nodes(graph, shapes, ids, subgraph.get());
  if (!status.ok()) return status;
  cache.restart();
  describe_weights(graph, shapes, constants->addresses, &cache);
  for (const GraphValue& value : graph.values) {
    if (named_data != nullptr && value.data.is_named) cache.lies_in(*named_data, value.data.bytes);
  }

  std::unique_ptr<Runtime> runtime(new Runtime(graph, state));
  xnn_runtime_t raw_runtime = nullptr;
  const uint32_t flags = kNoFusion | (is_profiled ? XNN_FLAG_BASIC_PROFILING : 0);
  status = check_xnn(xnn_create_runtime_v4(subgraph.get(), cache.get(), state.workspace(),
                                           state.threadpool(), flags, &raw_runtime),
                     "making a runtime");
  if (!status.ok()) return status;
  runtime->runtime_.reset(raw_runtime);
  if (is_profiled) runtime->operators_ = operator_count(raw_runtime);
  runtime->gemv_ = RecordedGemv::make(graph);
  runtime->constants_ = std::move(constants->in_place);
  runtime->planned_same_sizes_ = runtime->same_sizes(shapes);
  for (uint32_t i = 0; i < graph.values.size(); ++i) {
    const GraphValue& value = graph.values[i];
    if (value.type != DataType::kQdint8) continue;
    runtime->rows_.push_back({i, byte_size(value.type, shapes[i]), rows_of(value, shapes[i])});
  }
  return runtime;
}

// For each node with two inputs, which of them have its result's size.
std::vector<bool> Runtime::same_sizes(const std::vector<Shape>& shapes) const {
  std::vector<bool> result;
  for (const GraphNode& node : graph_.nodes) {
    if (node.inputs.size() != 2) continue;
    for (uint32_t input : node.inputs) {
      result.push_back(shapes[input].elements() == shapes[node.outputs[0]].elements());
    }
  }
  return result;
}

bool Runtime::can_take(const std::vector<Shape>& shapes) const {
  const bool has_room = std::all_of(rows_.begin(), rows_.end(), [&](const Rows& known) {
    const GraphValue& value = graph_.values[known.value];
    return byte_size(value.type, shapes[known.value]) > known.bytes ||
           rows_of(value, shapes[known.value]) <= known.rows;
  });
  return has_room && same_sizes(shapes) == planned_same_sizes_;
}

Status Runtime::reshape(const std::vector<Shape>& shapes) {
  state_.count_plan();
  for (uint32_t input : graph_.inputs) {
    const Shape& shape = shapes[input];
    auto status =
        check_xnn(xnn_reshape_external_value(runtime_.get(), graph_.values[input].external_id,
                                             shape.rank, shape.dims.data()),
                  "setting an input's shape");
    if (!status.ok()) return status;
  }
  auto status = check_xnn(xnn_reshape_runtime(runtime_.get()), "planning");
  if (!status.ok()) return status;
  for (uint32_t output : graph_.outputs) {
    Shape shape;
    const uint32_t id = graph_.values[output].external_id;
    status =
        check_xnn(xnn_get_external_value_shape(runtime_.get(), id, &shape.rank, shape.dims.data()),
                  "getting an output's shape");
    if (!status.ok()) return status;
    if (shape == shapes[output]) continue;
    return error(Code::kInternal, "[xnnpack] output %u must have shape %s; XNNPACK makes it %s", id,
                 shapes[output].text().c_str(), shape.text().c_str());
  }
  for (Rows& known : rows_) {
    const GraphValue& value = graph_.values[known.value];
    const size_t bytes = byte_size(value.type, shapes[known.value]);
    if (bytes <= known.bytes) continue;
    known.bytes = bytes;
    known.rows = rows_of(value, shapes[known.value]);
  }
  return {};
}

Status Runtime::set_pointers(std::span<const xnn_external_value> externals) {
  state_.count_plan();
  return check_xnn(xnn_setup_runtime_v2(runtime_.get(), externals.size(), externals.data()),
                   "setting pointers");
}

Status Runtime::run() {
  if (gemv_ == nullptr) return run_all();
  return check_xnn(gemv_->run(runtime_.get(), state_), "running");
}

Status Runtime::run_all() { return check_xnn(xnn_invoke_runtime(runtime_.get()), "running"); }

}  // namespace edgewise::xnnpack
