#include "backends/xnnpack/executor/fused_kernel_weights.h"

namespace edgewise::xnnpack {
namespace {

std::string key_of(const Graph& graph, uint32_t filter, uint32_t bias, const std::string& form,
                   const PackedWeights& weights) {
  if (form.empty()) return {};
  std::string key = "step " + form;
  for (uint32_t value : {filter, bias}) {
    if (value == kNone) {
      key += " none";
      continue;
    }
    const GraphValue& constant = graph.values[value];
    const std::string name = weights.name_of(constant.data.bytes.data());
    if (name.empty() || !(constant.data.is_named || weights.is_kept())) return {};
    key += " " + name + " " + name_of(constant.is_converted() ? constant.stored : constant.type);
  }
  return key;
}

}  // namespace

std::string weights_form(const char* layout, const char* kernels,
                         std::initializer_list<size_t> sizes) {
  std::string form = std::string(layout) + " " + kernels + " ";
  for (size_t size : sizes) form += std::to_string(size) + " ";
  return form;
}

Result<FusedKernelWeights> FusedKernelWeights::make(const Graph& graph, uint32_t filter,
                                                    uint32_t bias, size_t count,
                                                    const std::string& form, ProgramState& state,
                                                    const Pack& pack, Filter reads) {
  FusedKernelWeights result;
  PackedWeights& weights = state.weights();
  std::string key = key_of(graph, filter, bias, form, weights);
  const size_t size = count * sizeof(float);
  const PackedWeights::Origin origin = {graph.values[filter].data.bytes.data(), size, size};
  if (const auto* found = key.empty() ? nullptr : weights.find(key, origin); found != nullptr) {
    weights.count_reuse();
    result.data_ = reinterpret_cast<const float*>(found->memory.get());
    return result;
  }
  const uint32_t constants[] = {reads == Filter::kAsStored ? kNone : filter, bias};
  auto data = ConstantData::make(graph, constants);
  if (!data.ok()) return data.status();
  PackedWeights::Buffer buffer =
      key.empty() ? PackedWeights::Buffer::alone(size) : weights.allocate(size);
  if (buffer.memory == nullptr) {
    return error(Code::kOutOfMemory, "[xnnpack] packed weights need %zu bytes; there are none",
                 size);
  }
  auto* packed = reinterpret_cast<float*>(buffer.memory.get());
  pack(static_cast<const float*>(data->addresses[0]), static_cast<const float*>(data->addresses[1]),
       packed);
  if (key.empty()) {
    result.data_ = packed;
    result.own_ = std::move(buffer);
  } else {
    const auto& kept = weights.insert(std::move(key), std::move(buffer), origin);
    result.data_ = reinterpret_cast<const float*>(kept.memory.get());
  }
  return result;
}

}  // namespace edgewise::xnnpack
