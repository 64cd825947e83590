#include "backends/xnnpack/executor/executor.h"

#include <algorithm>
#include <string>

#include "backends/xnnpack/executor/parallel.h"
#include "backends/xnnpack/executor/quantized_rows.h"
#include "backends/xnnpack/executor/xnnpack_operator.h"
#include "edgewise/profile.h"

namespace edgewise::xnnpack {
namespace {

// What of each thread's own scratch memory begins at a multiple of it, so that a CPU that fetches
// ahead does not take another thread's.
constexpr size_t kPage = 4096;

// What is one step: a fused kernel's nodes, or one node that none of them has. In the order in
// which they run.
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
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (is_alias[i]) continue;
    Fusion* fusion = fusion_at[i];
    if (fusion == nullptr) {
      parts.push_back({nullptr, {i}});
    } else if ((fusion->runs_first ? fusion->nodes.front() : fusion->nodes.back()) == i) {
      parts.push_back({fusion, fusion->nodes});
    }
  }
  return parts;
}

// Nodes whose result is their input, bit by bit, in the same memory.
std::vector<bool> find_aliases(const Graph& graph, const std::vector<Fusion>& fusions) {
  std::vector<bool> result(graph.nodes.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const GraphNode& node = graph.nodes[i];
    if (node.kind != NodeKind::kStaticReshape && node.kind != NodeKind::kCopy) continue;
    result[i] =
        !graph.values[node.inputs[0]].is_constant() && !graph.values[node.outputs[0]].is_output;
  }
  for (const Fusion& fusion : fusions) {
    for (size_t node : fusion.nodes) result[node] = false;
  }
  return result;
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
                                                 const NamedData* named_data) {
  KernelChoice choice = choose_kernels(graph, shapes, kernels);
  const std::vector<bool> is_alias = find_aliases(graph, choice.fusions);
  std::unique_ptr<Executor> executor(new Executor(graph, state));
  for (const Part& part : split(graph, &choice.fusions, is_alias)) {
    auto step = part.fusion != nullptr
                    ? part.fusion->make(state)
                    : XnnpackOperator::make(graph, shapes, part.nodes[0], state, named_data);
    if (!step.ok()) return step.status();
    // Now, not when all are made: what is packed would be in memory twice.
    if (part.fusion != nullptr && named_data != nullptr) {
      release_read(graph, part.nodes, *named_data);
    }
    executor->steps_.push_back(std::move(*step));
    executor->origins_.push_back(
        {part.nodes, std::move(choice.refused[part.nodes.front()]), part.fusion != nullptr});
  }
  executor->addresses_.resize(graph.values.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!is_alias[i]) continue;
    executor->aliases_.push_back({graph.nodes[i].outputs[0], graph.nodes[i].inputs[0]});
  }
  executor->find_lifetimes();
  return executor;
}

std::vector<DelegateOperation> Executor::operations(const std::vector<Shape>& shapes) const {
  const auto text_of = [&](const std::vector<uint32_t>& values) {
    std::string text;
    for (uint32_t value : values) {
      text += (text.empty() ? "" : ", ") + std::string(name_of(graph_.values[value].type)) +
              shapes[value].text();
    }
    return text;
  };
  std::vector<DelegateOperation> result;
  for (size_t i = 0; i < steps_.size(); ++i) {
    DelegateOperation& one = result.emplace_back();
    one.kernel = steps_[i]->name();
    one.sizes = text_of(steps_[i]->reads()) + " -> " + text_of(steps_[i]->writes());
    for (size_t node : origins_[i].nodes) {
      if (!one.operation.empty()) one.operation += " + ";
      one.operation += name_of(graph_.nodes[node].kind);
      graph_.nodes[node].add_indices(&one.nodes);
    }
    for (const RefusedKernel& refused : origins_[i].refused) {
      one.refused.emplace_back(refused.kernel, refused.rule);
    }
  }
  return result;
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
  for (size_t i = 0; i < steps_.size(); ++i) {
    const size_t output = index[steps_[i]->writes().front()];
    if (output == kOutside) continue;
    for (uint32_t value : steps_[i]->reads()) {
      const size_t input = index[value];
      if (input == kOutside || between_[input].last != i) continue;
      if (steps_[i]->may_overwrite(value)) between_[output].may_replace.push_back(input);
    }
  }
}

bool Executor::can_take(const std::vector<Shape>& shapes) const {
  return std::all_of(steps_.begin(), steps_.end(),
                     [&](const auto& step) { return step->can_take(shapes); });
}

Status Executor::reshape(const std::vector<Shape>& shapes) {
  scratch_bytes_ = thread_stride_ = 0;
  for (const auto& step : steps_) {
    EDGEWISE_RETURN_IF_ERROR(step->reshape(shapes));
    scratch_bytes_ = std::max(scratch_bytes_, step->scratch_bytes());
    thread_stride_ = std::max(thread_stride_, step->thread_scratch_bytes());
  }
  thread_stride_ = round_up(thread_stride_, kPage);
  for (Lifetime& value : between_) {
    value.bytes = value_bytes(graph_.values[value.value], shapes[value.value]);
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

Result<std::byte*> Executor::memory() {
  return state_.memory_between_steps(threads_of(state_.threadpool()) * thread_stride_ +
                                     between_bytes_ + scratch_bytes_);
}

Status Executor::set_all_pointers() {
  auto memory = this->memory();
  if (!memory.ok()) return memory.status();
  memory_ = *memory;
  std::byte* const between = *memory + threads_of(state_.threadpool()) * thread_stride_;
  const Scratch scratch = {between + between_bytes_, *memory, thread_stride_};
  for (const Lifetime& value : between_) addresses_[value.value] = between + value.offset;
  for (const Alias& alias : aliases_) addresses_[alias.value] = addresses_[alias.of];
  for (const auto& step : steps_) {
    EDGEWISE_RETURN_IF_ERROR(step->set_pointers(addresses_, scratch));
  }
  return {};
}

// Another delegate of the program may have needed more memory.
Status Executor::follow_memory() {
  auto memory = this->memory();
  if (!memory.ok()) return memory.status();
  return *memory == memory_ ? Status() : set_all_pointers();
}

Status Executor::run() {
  EDGEWISE_RETURN_IF_ERROR(follow_memory());
  for (const auto& step : steps_) EDGEWISE_RETURN_IF_ERROR(step->run());
  return {};
}

void Executor::prepare_profile() {
  if (profile_parts_ != nullptr) return;
  std::vector<ProfilePart> parts(steps_.size());
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Origin& origin = origins_[i];
    parts[i].name = steps_[i]->name();
    if (!origin.is_fused) {
      parts[i].name = name_of(graph_.nodes[origin.nodes[0]].kind) + (", " + parts[i].name);
    }
    for (size_t node : origin.nodes) graph_.nodes[node].add_indices(&parts[i].nodes);
  }
  profile_parts_ = std::make_shared<const std::vector<ProfilePart>>(std::move(parts));
}

Status Executor::run_profiled(RunProfile& profile) {
  prepare_profile();
  EDGEWISE_RETURN_IF_ERROR(follow_memory());
  for (size_t i = 0; i < steps_.size(); ++i) {
    const int64_t begin = profile_clock();
    EDGEWISE_RETURN_IF_ERROR(steps_[i]->run());
    profile.add_part(profile_parts_, i, begin, profile_clock());
  }
  return {};
}

}  // namespace edgewise::xnnpack
