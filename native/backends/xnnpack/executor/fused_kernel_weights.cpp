#include "backends/xnnpack/executor/fused_kernel_weights.h"

namespace edgewise::xnnpack {
namespace {

std::string key_of(const Graph& graph, uint32_t filter, uint32_t bias, const std::string& form) {
  std::string key = "step " + form;
  for (uint32_t value : {filter, bias}) {
    if (value == kNone) {
      key += " none";
      continue;
    }
    const GraphValue& constant = graph.values[value];
    if (!constant.data.is_named) return {};
    key += " " + std::to_string(reinterpret_cast<uintptr_t>(constant.data.bytes.data())) + " " +
           name_of(constant.is_converted() ? constant.stored : constant.type);
  }
  return key;
}

}  // namespace

Result<FusedKernelWeights> FusedKernelWeights::make(const Graph& graph, uint32_t filter,
                                                    uint32_t bias, size_t count,
                                                    const std::string& form, ProgramState& state,
                                                    const Pack& pack) {
  FusedKernelWeights result;
  std::string key = key_of(graph, filter, bias, form);
  if (const auto* found = key.empty() ? nullptr : state.weights().find(key); found != nullptr) {
    state.weights().count_reuse();
    result.data_ = reinterpret_cast<const float*>(found->memory.get());
    return result;
  }
  Graph constants;
  for (uint32_t value : {filter, bias}) {
    if (value != kNone) constants.values.push_back(graph.values[value]);
  }
  auto data = ConstantData::make(constants);
  if (!data.ok()) return data.status();
  const size_t size = count * sizeof(float);
  PackedWeights::Buffer buffer =
      key.empty() ? PackedWeights::Buffer::alone(size) : state.weights().allocate(size);
  if (buffer.memory == nullptr) {
    return error(Code::kOutOfMemory, "[xnnpack] packed weights need %zu bytes; there are none",
                 size);
  }
  auto* packed = reinterpret_cast<float*>(buffer.memory.get());
  pack(static_cast<const float*>(data->addresses[0]),
       bias == kNone ? nullptr : static_cast<const float*>(data->addresses[1]), packed);
  result.data_ = packed;
  if (key.empty()) {
    result.own_ = std::move(buffer);
  } else {
    state.weights().insert(std::move(key), std::move(buffer));
  }
  return result;
}

}  // namespace edgewise::xnnpack
