#include "backends/xnnpack/executor/executor.h"

#include <algorithm>

#include "backends/xnnpack/executor/xnnpack_step.h"

namespace edgewise::xnnpack {
namespace {

// A node is in no part if its result is where its input is.
constexpr size_t kNoPart = SIZE_MAX - 1;

// Values that another part than the one that writes them reads, or the caller.
std::vector<bool> needed_elsewhere(const Graph& graph, const std::vector<size_t>& part_of) {
  std::vector<size_t> writer(graph.values.size(), SIZE_MAX);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (uint32_t output : graph.nodes[i].outputs) writer[output] = part_of[i];
  }
  std::vector<bool> result(graph.values.size());
  for (uint32_t output : graph.outputs) result[output] = true;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (uint32_t input : graph.nodes[i].inputs) {
      if (input == kNone || writer[input] == SIZE_MAX) continue;
      if (writer[input] != part_of[i] || part_of[i] == kNoPart) {
        result[input] = true;
      }
    }
  }
  return result;
}

// Parts in the order in which they run: fused kernels and what lies between.
struct Part {
  Fusion* fusion = nullptr;
  std::vector<size_t> nodes;
};

std::vector<Part> split(const Graph& graph, std::vector<Fusion>* fusions,
                        const std::vector<bool>& is_alias) {
  std::vector<Fusion*> fusion_at(graph.nodes.size());
  for (Fusion& fusion : *fusions) {
    for (size_t node : fusion.nodes) fusion_at[node] = &fusion;
  }
  std::vector<Part> parts;
  bool is_open = false;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (is_alias[i]) continue;
    Fusion* fusion = fusion_at[i];
    if (fusion == nullptr) {
      if (!is_open) parts.emplace_back();
      parts.back().nodes.push_back(i);
      is_open = true;
    } else if ((fusion->runs_first ? fusion->nodes.front() : fusion->nodes.back()) == i) {
      parts.push_back({fusion, fusion->nodes});
      is_open = false;
    }
  }
  return parts;
}

std::vector<size_t> parts_of_nodes(const Graph& graph, const std::vector<Part>& parts) {
  std::vector<size_t> result(graph.nodes.size(), kNoPart);
  for (size_t i = 0; i < parts.size(); ++i) {
    for (size_t node : parts[i].nodes) result[node] = i;
  }
  return result;
}

// Reshapes of an input or beside a fused kernel, where XNNPACK would copy.
std::vector<bool> find_aliases(const Graph& graph, const std::vector<Fusion>& fusions) {
  std::vector<bool> result(graph.nodes.size());
  std::vector<bool> is_chosen(graph.nodes.size());
  for (const Fusion& fusion : fusions) {
    for (size_t node : fusion.nodes) is_chosen[node] = true;
  }
  std::vector<bool> is_ours(graph.values.size());    // the caller's, or written by a step of ours
  std::vector<bool> is_theirs(graph.values.size());  // read by XNNPACK
  for (uint32_t input : graph.inputs) is_ours[input] = true;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (uint32_t output : graph.nodes[i].outputs) is_ours[output] = is_chosen[i];
    for (uint32_t input : graph.nodes[i].inputs) {
      if (input != kNone && !is_chosen[i]) is_theirs[input] = true;
    }
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const GraphNode& node = graph.nodes[i];
    if (node.kind != NodeKind::kStaticReshape || is_chosen[i]) continue;
    const GraphValue& from = graph.values[node.inputs[0]];
    const GraphValue& to = graph.values[node.outputs[0]];
    if (from.type != DataType::kFp32 || to.type != from.type || from.is_constant() ||
        to.is_output) {
      continue;
    }
    result[i] = is_ours[node.inputs[0]] || !is_theirs[node.outputs[0]];
    if (result[i]) is_ours[node.outputs[0]] = true;
  }
  return result;
}

// XNNPACK does not hand out what it quantizes at run time.
bool can_pass(const Graph& graph, const std::vector<bool>& is_needed) {
  for (size_t i = 0; i < graph.values.size(); ++i) {
    if (is_needed[i] && graph.values[i].type == DataType::kQdint8) return false;
  }
  return true;
}

// Pages of the constants that nodes read. What reads them again gets them from the file.
void release_read(const Graph& graph, const std::vector<size_t>& nodes,
                  const NamedData& named_data) {
  for (size_t node : nodes) {
    for (uint32_t input : graph.nodes[node].inputs) {
      if (input == kNone || !graph.values[input].data.is_named) continue;
      named_data.release(graph.values[input].data.bytes);
    }
  }
}

}  // namespace

Result<std::unique_ptr<Executor>> Executor::make(const Graph& graph,
                                                 const std::vector<Shape>& shapes,
                                                 const FloatKernels* kernels, ProgramState& state,
                                                 const NamedData* named_data, bool is_profiled) {
  std::vector<Fusion> fusions;
  std::vector<bool> is_alias, is_needed;
  std::vector<Part> parts;
  const auto can_choose = [&](std::vector<Fusion> chosen) {
    fusions = std::move(chosen);
    is_alias = find_aliases(graph, fusions);
    parts = split(graph, &fusions, is_alias);
    is_needed = needed_elsewhere(graph, parts_of_nodes(graph, parts));
    return can_pass(graph, is_needed);
  };
  if (!can_choose(choose_fusions(graph, shapes, kernels)) &&
      !can_choose(choose_fusions(graph, shapes, kernels, false))) {
    can_choose({});
  }
  std::unique_ptr<Executor> executor(new Executor(graph, state));
  std::vector<ProfilePart> profile_parts;
  for (const Part& part : parts) {
    auto step = part.fusion != nullptr ? part.fusion->make(state)
                                       : XnnpackStep::make(graph, shapes, part.nodes, is_needed,
                                                           state, named_data, is_profiled);
    if (!step.ok()) return step.status();
    // Now, not when all are made: what is packed would be in memory twice.
    if (part.fusion != nullptr && named_data != nullptr) {
      release_read(graph, part.nodes, *named_data);
    }
    executor->steps_.push_back(std::move(*step));
    if (!is_profiled) continue;
    executor->first_parts_.push_back(profile_parts.size());
    for (ProfilePart& of_step : executor->steps_.back()->parts()) {
      if (part.fusion != nullptr) {
        for (size_t node : part.nodes) graph.nodes[node].add_indices(&of_step.nodes);
      }
      profile_parts.push_back(std::move(of_step));
    }
  }
  if (is_profiled) {
    executor->profile_parts_ =
        std::make_shared<const std::vector<ProfilePart>>(std::move(profile_parts));
  }
  executor->addresses_.resize(graph.values.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!is_alias[i]) continue;
    executor->aliases_.push_back({graph.nodes[i].outputs[0], graph.nodes[i].inputs[0]});
  }
  executor->find_lifetimes();
  return executor;
}

void Executor::find_lifetimes() {
  constexpr size_t kOutside = SIZE_MAX;
  std::vector<size_t> index(graph_.values.size(), kOutside);  // into between_
  for (size_t i = 0; i < steps_.size(); ++i) {
    for (uint32_t value : steps_[i]->writes()) {
      if (graph_.values[value].is_external()) continue;
      index[value] = between_.size();
      between_.push_back({.value = value, .first = i, .last = i});
    }
  }
  for (const Alias& alias : aliases_) index[alias.value] = index[alias.of];
  for (size_t i = 0; i < steps_.size(); ++i) {
    for (uint32_t value : steps_[i]->reads()) {
      if (index[value] != kOutside) between_[index[value]].last = i;
    }
  }
}

bool Executor::can_take(const std::vector<Shape>& shapes) const {
  return std::all_of(steps_.begin(), steps_.end(),
                     [&](const auto& step) { return step->can_take(shapes); });
}

Status Executor::reshape(const std::vector<Shape>& shapes) {
  scratch_bytes_ = 0;
  for (const auto& step : steps_) {
    EDGEWISE_RETURN_IF_ERROR(step->reshape(shapes));
    scratch_bytes_ = std::max(scratch_bytes_, step->scratch_bytes());
  }
  for (Lifetime& value : between_) {
    value.bytes = byte_size(graph_.values[value.value].type, shapes[value.value]);
  }
  between_bytes_ = assign_offsets(&between_);
  memory_ = nullptr;
  return {};
}

Status Executor::set_pointers(std::span<void* const> addresses) {
  for (const auto* list : {&graph_.inputs, &graph_.outputs}) {
    for (uint32_t value : *list) addresses_[value] = addresses[value];
  }
  return set_all_pointers();
}

Status Executor::set_all_pointers() {
  auto memory = state_.memory_between_steps(between_bytes_ + scratch_bytes_);
  if (!memory.ok()) return memory.status();
  memory_ = *memory;
  for (const Lifetime& value : between_) addresses_[value.value] = *memory + value.offset;
  for (const Alias& alias : aliases_) addresses_[alias.value] = addresses_[alias.of];
  for (const auto& step : steps_) {
    EDGEWISE_RETURN_IF_ERROR(step->set_pointers(addresses_, *memory + between_bytes_));
  }
  return {};
}

// Another delegate of the program may have needed more memory.
Status Executor::follow_memory() {
  auto memory = state_.memory_between_steps(between_bytes_ + scratch_bytes_);
  if (!memory.ok()) return memory.status();
  return *memory == memory_ ? Status() : set_all_pointers();
}

Status Executor::run() {
  EDGEWISE_RETURN_IF_ERROR(follow_memory());
  for (const auto& step : steps_) EDGEWISE_RETURN_IF_ERROR(step->run());
  return {};
}

Status Executor::run_profiled(RunProfile& profile) {
  EDGEWISE_RETURN_IF_ERROR(follow_memory());
  for (size_t i = 0; i < steps_.size(); ++i) {
    PartTimes times(profile, profile_parts_, first_parts_[i]);
    EDGEWISE_RETURN_IF_ERROR(steps_[i]->run_profiled(times));
  }
  return {};
}

}  // namespace edgewise::xnnpack
