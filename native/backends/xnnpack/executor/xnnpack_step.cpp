#include "backends/xnnpack/executor/xnnpack_step.h"

namespace edgewise::xnnpack {

Result<std::unique_ptr<Step>> XnnpackStep::make(const Graph& graph,
                                                const std::vector<Shape>& shapes,
                                                std::span<const size_t> nodes,
                                                const std::vector<bool>& is_needed,
                                                ProgramState& state, const NamedData* named_data,
                                                bool is_profiled) {
  std::unique_ptr<XnnpackStep> step(new XnnpackStep(state));
  Graph& part = step->graph_;
  part.owner = graph.owner;
  std::vector<uint32_t> ids(graph.values.size(), kNone);
  const auto add = [&](uint32_t value, bool is_written) {
    if (value == kNone) return kNone;
    if (ids[value] != kNone) return ids[value];
    const auto id = static_cast<uint32_t>(part.values.size());
    GraphValue copy = graph.values[value];
    copy.is_input = !is_written && !copy.is_constant();
    copy.is_output = is_written && is_needed[value];
    copy.external_id = kNone;
    if (copy.is_external()) {
      copy.external_id = part.externals++;
      (is_written ? part.outputs : part.inputs).push_back(id);
      (is_written ? step->writes_ : step->reads_).push_back(value);
    }
    part.values.push_back(std::move(copy));
    step->values_.push_back(value);
    return ids[value] = id;
  };
  for (size_t index : nodes) {
    GraphNode node = graph.nodes[index];
    for (uint32_t& input : node.inputs) input = add(input, false);
    for (uint32_t& output : node.outputs) output = add(output, true);
    part.nodes.push_back(std::move(node));
  }
  auto runtime =
      Runtime::make(part, step->part_of(shapes), state, step->cache_, named_data, is_profiled);
  if (!runtime.ok()) return runtime.status();
  step->runtime_ = std::move(*runtime);
  // XNNPACK has them packed with the weights; of a language model they are a tenth of these.
  for (GraphValue& value : part.values) {
    value.channel_scales = std::vector<float>();
    value.block_scales = std::vector<uint16_t>();
  }
  return std::unique_ptr<Step>(std::move(step));
}

std::vector<Shape> XnnpackStep::part_of(const std::vector<Shape>& shapes) const {
  std::vector<Shape> result;
  result.reserve(values_.size());
  for (uint32_t value : values_) result.push_back(shapes[value]);
  return result;
}

bool XnnpackStep::can_take(const std::vector<Shape>& shapes) const {
  return runtime_->can_take(part_of(shapes));
}

Status XnnpackStep::reshape(const std::vector<Shape>& shapes) {
  return runtime_->reshape(part_of(shapes));
}

Status XnnpackStep::run_profiled(PartTimes& times) {
  EDGEWISE_RETURN_IF_ERROR(runtime_->run_profiled(&times_));
  for (size_t i = 0; i < times_.size(); ++i) times.add(i, times_[i].begin, times_[i].end);
  return {};
}

Status XnnpackStep::set_pointers(std::span<void* const> addresses, std::byte* /*scratch*/) {
  std::vector<xnn_external_value> externals;
  externals.reserve(graph_.externals);
  for (const auto* list : {&graph_.inputs, &graph_.outputs}) {
    for (uint32_t value : *list) {
      externals.push_back({graph_.values[value].external_id, addresses[values_[value]]});
    }
  }
  return runtime_->set_pointers(externals);
}

}  // namespace edgewise::xnnpack
