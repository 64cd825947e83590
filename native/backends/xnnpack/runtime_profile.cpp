#include "backends/xnnpack/runtime_profile.h"

#include <algorithm>

#include "backends/xnnpack/runtime.h"

namespace edgewise::xnnpack {
namespace {

// The list `what`, which XNNPACK asks to be called twice for: for the size, then for the items.
template <typename T>
std::vector<T> list_of(xnn_runtime_t runtime, xnn_profile_info what) {
  size_t bytes = 0;
  if (xnn_get_runtime_profiling_info(runtime, what, 0, nullptr, &bytes) !=
      xnn_status_out_of_memory) {
    return {};
  }
  std::vector<T> list(bytes / sizeof(T));
  const xnn_status status =
      xnn_get_runtime_profiling_info(runtime, what, bytes, list.data(), &bytes);
  return status == xnn_status_success ? list : std::vector<T>();
}

// The node behind each node of XNNPACK's that define_nodes makes.
std::vector<const GraphNode*> nodes_by_operator(const Graph& graph) {
  std::vector<const GraphNode*> result;
  for (const GraphNode& node : graph.nodes) {
    // XNNPACK has two nodes for it: a mean and a clamp.
    if (node.kind == NodeKind::kGlobalAvgPooling2d && node.has_bounds) result.push_back(&node);
    result.push_back(&node);
  }
  return result;
}

// XNNPACK has one name for all functions of one number, and for all of two.
bool says_little(const std::string& name) {
  return name.starts_with("Unary ") || name.starts_with("Binary ") || name.starts_with("Copy");
}

}  // namespace

size_t operator_count(xnn_runtime_t runtime) {
  const auto count = list_of<size_t>(runtime, xnn_profile_info_num_operators);
  return count.empty() ? 0 : count[0];
}

std::vector<std::string> operator_names(xnn_runtime_t runtime) {
  const auto text = list_of<char>(runtime, xnn_profile_info_operator_name);
  std::vector<std::string> names;
  for (auto at = text.begin(); at != text.end();) {
    const auto end = std::find(at, text.end(), '\0');
    names.emplace_back(at, end);
    at = end == text.end() ? end : end + 1;
  }
  return names;
}

std::vector<uint64_t> operator_times(xnn_runtime_t runtime) {
  return list_of<uint64_t>(runtime, xnn_profile_info_operator_timing);
}

std::vector<ProfilePart> Runtime::parts() const {
  std::vector<std::string> names = operator_names(runtime_.get());
  const std::vector<const GraphNode*> nodes = nodes_by_operator(graph_);
  names.resize(operators_, "operator");
  std::vector<ProfilePart> parts;
  for (size_t i = 0; i < operators_; ++i) {
    parts.push_back({.name = std::move(names[i]), .nodes = {}, .counters = {}});
    // XNNPACK may leave a node out; then it is not known which.
    if (nodes.size() != operators_) continue;
    nodes[i]->add_indices(&parts.back().nodes);
    if (says_little(parts.back().name)) {
      parts.back().name = name_of(nodes[i]->kind) + (", " + parts.back().name);
    }
  }
  return parts;
}

Status Runtime::run_profiled(std::vector<OperatorTime>* times) {
  times->clear();
  const int64_t begin = profile_clock();
  {
    const OperatorClock clock(times);
    EDGEWISE_RETURN_IF_ERROR(run_all());
  }
  const int64_t end = profile_clock();
  if (times->size() == operators_) return {};
  // XNNPACK rounds each operator down to microseconds; what is missing is shared out.
  const std::vector<uint64_t> whole = operator_times(runtime_.get());
  times->clear();
  if (whole.empty()) return {};
  int64_t missing = end - begin;
  for (const uint64_t time : whole) missing -= static_cast<int64_t>(time) * 1000;
  const int64_t share = std::clamp<int64_t>(missing / static_cast<int64_t>(whole.size()), 0, 1000);
  int64_t at = begin;
  for (size_t i = 0; i < whole.size(); ++i) {
    const int64_t next = at + static_cast<int64_t>(whole[i]) * 1000 + share;
    times->push_back({i, at, next});
    at = next;
  }
  return {};
}

}  // namespace edgewise::xnnpack
