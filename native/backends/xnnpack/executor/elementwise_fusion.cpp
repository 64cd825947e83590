#include "backends/xnnpack/executor/elementwise_fusion.h"

#include <algorithm>
#include <cstring>

#include "backends/xnnpack/executor/linear_nodes.h"

namespace edgewise::xnnpack {

Result<std::unique_ptr<Step>> ElementwiseFusion::make(const Graph& graph,
                                                      std::vector<size_t> nodes) {
  std::unique_ptr<ElementwiseFusion> step(new ElementwiseFusion(graph, std::move(nodes)));
  step->find_values();
  EDGEWISE_RETURN_IF_ERROR(step->copy_constants());
  return std::unique_ptr<Step>(std::move(step));
}

void ElementwiseFusion::find_values() {
  const Readers readers(graph_);
  std::vector<bool> is_known(graph_.values.size());
  is_inside_.resize(graph_.values.size());
  for (size_t i : nodes_) {
    const GraphNode& node = graph_.nodes[i];
    for (uint32_t input : node.inputs) {
      if (input == kNone || graph_.values[input].is_constant() || is_known[input]) continue;
      is_known[input] = true;
      reads_.push_back(input);
    }
    const uint32_t output = node.outputs[0];
    is_known[output] = true;
    is_inside_[output] = !graph_.values[output].is_output &&
                         std::ranges::all_of(readers.nodes[output], [&](size_t reader) {
                           return std::ranges::binary_search(nodes_, reader);
                         });
    if (!is_inside_[output]) writes_.push_back(output);
  }
}

// Aligned, and with what may be read behind them.
Status ElementwiseFusion::copy_constants() {
  std::vector<Lifetime> constants;
  constant_addresses_.resize(graph_.values.size());
  std::vector<bool> is_known(graph_.values.size());
  for (size_t i : nodes_) {
    for (uint32_t input : graph_.nodes[i].inputs) {
      if (input == kNone || !graph_.values[input].is_constant() || is_known[input]) continue;
      is_known[input] = true;
      constants.push_back({.value = input, .bytes = graph_.values[input].data.bytes.size()});
    }
  }
  auto block = MemoryBlock::allocate(assign_offsets(&constants));
  if (!block.ok()) return block.status();
  constants_ = std::move(*block);
  for (const Lifetime& constant : constants) {
    std::byte* address = constants_.data() + constant.offset;
    std::memcpy(address, graph_.values[constant.value].data.bytes.data(), constant.bytes);
    constant_addresses_[constant.value] = address;
  }
  return {};
}

bool ElementwiseFusion::can_take(const std::vector<Shape>& shapes) const {
  return std::ranges::all_of(nodes_, [&](size_t node) {
    return elementwise_loops(graph_, shapes, graph_.nodes[node]).has_value();
  });
}

Status ElementwiseFusion::reshape(const std::vector<Shape>& shapes) {
  planned_.clear();
  inside_.clear();
  constexpr size_t kOutside = SIZE_MAX;
  std::vector<size_t> index(graph_.values.size(), kOutside);  // into inside_
  for (size_t i : nodes_) {
    const GraphNode& node = graph_.nodes[i];
    const auto loops = elementwise_loops(graph_, shapes, node);
    if (!loops) return node_error(Code::kInternal, node, "it is not small");
    for (uint32_t input : node.inputs) {
      if (input != kNone && index[input] != kOutside) inside_[index[input]].last = i;
    }
    const uint32_t output = node.outputs[0];
    if (is_inside_[output]) {
      index[output] = inside_.size();
      const size_t bytes = byte_size(graph_.values[output].type, shapes[output]);
      inside_.push_back({.value = output, .bytes = bytes, .first = i, .last = i});
    }
    planned_.insert(planned_.end(), loops->begin(), loops->end());
  }
  inside_bytes_ = assign_offsets(&inside_);
  return {};
}

Status ElementwiseFusion::set_pointers(std::span<void* const> addresses, const Scratch& scratch) {
  std::vector<std::byte*> at = constant_addresses_;
  for (const auto* list : {&reads_, &writes_}) {
    for (uint32_t value : *list) at[value] = static_cast<std::byte*>(addresses[value]);
  }
  for (const Lifetime& value : inside_) at[value.value] = scratch.shared + value.offset;
  const auto address = [&](uint32_t value, size_t offset) {
    return value == kNone ? nullptr : reinterpret_cast<float*>(at[value]) + offset;
  };
  loops_.clear();
  for (const NodeLoop& planned : planned_) {
    ElementwiseLoop& loop = loops_.emplace_back(planned.loop);
    loop.a = address(planned.a, planned.a_offset);
    loop.b = address(planned.b, 0);
    loop.c = address(planned.c, 0);
    loop.out = address(planned.out, planned.out_offset);
  }
  return {};
}

Status ElementwiseFusion::run() {
  run_elementwise_loops(loops_);
  return {};
}

}  // namespace edgewise::xnnpack
