// Builds payloads and runs them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "edgewise/backend.h"
#include "xnnpack_graph_objects.h"

namespace edgewise::xnnpack {

using Dims = std::vector<uint32_t>;
inline constexpr uint32_t kNoId = 0xffffffff;

class MemoryNamedData final : public NamedData {
 public:
  void add(std::string key, std::vector<std::byte> bytes);
  Result<std::span<const std::byte>> find(std::string_view key) const override;

 private:
  std::map<std::string, std::vector<std::byte>, std::less<>> blobs_;
};

// Ids of values are their numbers; inputs and outputs are numbered as they are made, inputs
// first.
class PayloadBuilder {
 public:
  fb::XNNGraphT graph;
  std::vector<std::byte> constants;

  PayloadBuilder();

  uint32_t input(Dims dims, fb::XNNDatatype type = fb::XNNDatatype::fp32);
  uint32_t output(Dims dims, fb::XNNDatatype type = fb::XNNDatatype::fp32);
  uint32_t internal(Dims dims, fb::XNNDatatype type = fb::XNNDatatype::fp32);
  template <typename T>
  uint32_t constant(Dims dims, const std::vector<T>& data,
                    fb::XNNDatatype type = fb::XNNDatatype::fp32) {
    const uint32_t id = internal(std::move(dims), type);
    tensor(id).constant_buffer_idx = add_constant(data.data(), data.size() * sizeof(T));
    return id;
  }
  // Moves the constant of `id` to named data.
  void name_constant(uint32_t id, const std::string& key, MemoryNamedData* named_data);
  uint32_t add_constant(const void* data, size_t size);

  void per_tensor(uint32_t id, float scale, int32_t zero_point);
  void per_channel(uint32_t id, std::vector<float> scales, int32_t dim);
  void per_token(uint32_t id, int32_t nonbatch_dims);

  fb::XNNTensorValueT& tensor(uint32_t id);
  fb::XNNQuantizedTensorValueT& quantized(uint32_t id);

  // The node's table type T goes by the union's type: there are tables that several share.
  template <typename T>
  T* node(fb::XNodeUnion type, T table) {
    auto node = std::make_unique<fb::XNodeT>();
    node->debug_handle = static_cast<uint32_t>(graph.xnodes.size()) + 100;
    node->xnode_union.type = type;
    auto* stored = new T(std::move(table));
    node->xnode_union.value = stored;
    graph.xnodes.push_back(std::move(node));
    return stored;
  }
  void unary(fb::XNodeUnion type, uint32_t in, uint32_t out, uint32_t flags = 0);
  void binary(fb::XNodeUnion type, uint32_t a, uint32_t b, uint32_t out, uint32_t flags = 0);
  void bound(float min, float max);  // the last node
  void linear(uint32_t in, uint32_t filter, uint32_t bias, uint32_t out, uint32_t flags = 0);
  // A linear of `in` (quantized per token) with random 4-bit weights, of which `group` share a
  // scale.
  void group_linear(uint32_t in, uint32_t out, uint32_t bias = UINT32_MAX, uint32_t group = 32);
  // The same with qcint4 or qcint8 weights, of which each column has a scale.
  void channel_linear(uint32_t in, uint32_t out, fb::XNNDatatype type, uint32_t bias = UINT32_MAX);

  std::vector<std::byte> bytes() const;            // with header
  std::vector<std::byte> flatbuffer_only() const;  // without

 private:
  uint32_t value(Dims dims, fb::XNNDatatype type, uint32_t external_id, uint32_t flags);
};

// A tensor with memory of its own.
struct HostTensor {
  std::vector<std::byte> memory;
  Value value;

  HostTensor(ScalarType type, std::vector<int64_t> sizes, std::vector<uint8_t> dim_order = {},
             Dynamism dynamism = Dynamism::kStatic);
  Tensor& tensor() { return *value.get<Tensor>(); }
  template <typename T>
  HostTensor& fill(const std::vector<T>& data) {
    std::copy(data.begin(), data.end(), tensor().data<T>());
    return *this;
  }
  template <typename T>
  std::vector<T> read() {
    return {tensor().data<T>(), tensor().data<T>() + tensor().numel()};
  }
};

// `payload` must live as long as the delegate, which reads constants in place.
Result<std::unique_ptr<Delegate>> make_delegate(
    const std::vector<std::byte>& payload, const NamedData* named_data = nullptr,
    std::shared_ptr<BackendProgramState>* state = nullptr, int threads = 1,
    bool own_kernels = true);
template <typename... Rest>
void make_delegate(std::vector<std::byte>&&, Rest&&...) = delete;
Status run(Delegate& delegate, std::vector<HostTensor*> arguments);

}  // namespace edgewise::xnnpack
