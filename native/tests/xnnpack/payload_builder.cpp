#include "payload_builder.h"

#include <algorithm>
#include <cstring>
#include <random>

namespace edgewise::xnnpack {

void MemoryNamedData::add(std::string key, std::vector<std::byte> bytes) {
  bytes.reserve(bytes.size() + kReadPadding);
  blobs_[std::move(key)] = std::move(bytes);
}

Result<std::span<const std::byte>> MemoryNamedData::find(std::string_view key) const {
  const auto found = blobs_.find(key);
  if (found == blobs_.end()) return error(Code::kNotFound, "no such blob");
  return std::span<const std::byte>(found->second);
}

PayloadBuilder::PayloadBuilder() {
  graph.version.assign(1, '0');
  graph.constant_data.push_back(std::make_unique<fb::ConstantDataOffsetT>());
}

uint32_t PayloadBuilder::value(Dims dims, fb::XNNDatatype type, uint32_t external_id,
                               uint32_t flags) {
  fb::XNNTensorValueT tensor;
  tensor.datatype = type;
  tensor.num_dims = static_cast<uint32_t>(dims.size());
  tensor.dims = std::move(dims);
  tensor.external_id = external_id;
  tensor.flags = flags;
  tensor.id_out = static_cast<uint32_t>(graph.xvalues.size());
  auto value = std::make_unique<fb::XValueT>();
  value->xvalue_union.Set(std::move(tensor));
  graph.xvalues.push_back(std::move(value));
  return static_cast<uint32_t>(graph.xvalues.size() - 1);
}

uint32_t PayloadBuilder::input(Dims dims, fb::XNNDatatype type) {
  graph.input_ids.push_back(static_cast<uint32_t>(graph.xvalues.size()));
  return value(std::move(dims), type, graph.num_externs++, 1);
}

uint32_t PayloadBuilder::output(Dims dims, fb::XNNDatatype type) {
  graph.output_ids.push_back(static_cast<uint32_t>(graph.xvalues.size()));
  return value(std::move(dims), type, graph.num_externs++, 2);
}

uint32_t PayloadBuilder::internal(Dims dims, fb::XNNDatatype type) {
  return value(std::move(dims), type, kNoId, 0);
}

uint32_t PayloadBuilder::add_constant(const void* data, size_t size) {
  constants.resize((constants.size() + 15) / 16 * 16);
  auto entry = std::make_unique<fb::ConstantDataOffsetT>();
  entry->offset = constants.size();
  entry->size = size;
  graph.constant_data.push_back(std::move(entry));
  constants.resize(constants.size() + size);
  std::memcpy(constants.data() + constants.size() - size, data, size);
  return static_cast<uint32_t>(graph.constant_data.size() - 1);
}

void PayloadBuilder::name_constant(uint32_t id, const std::string& key,
                                   MemoryNamedData* named_data) {
  auto& entry = *graph.constant_data[tensor(id).constant_buffer_idx];
  const auto begin = constants.begin() + static_cast<std::ptrdiff_t>(entry.offset);
  named_data->add(key, {begin, begin + static_cast<std::ptrdiff_t>(entry.size)});
  entry.offset = UINT64_MAX;
  entry.named_key = key;
}

fb::XNNTensorValueT& PayloadBuilder::tensor(uint32_t id) {
  auto& value = graph.xvalues[id]->xvalue_union;
  if (auto* plain = value.AsXNNTensorValue()) return *plain;
  return *value.AsXNNQuantizedTensorValue()->tensor_value;
}

fb::XNNQuantizedTensorValueT& PayloadBuilder::quantized(uint32_t id) {
  auto& value = graph.xvalues[id]->xvalue_union;
  if (auto* plain = value.AsXNNTensorValue()) {
    fb::XNNQuantizedTensorValueT wrapped;
    wrapped.tensor_value = std::make_unique<fb::XNNTensorValueT>(*plain);
    value.Set(std::move(wrapped));
  }
  return *value.AsXNNQuantizedTensorValue();
}

void PayloadBuilder::per_tensor(uint32_t id, float scale, int32_t zero_point) {
  fb::PerTensorQuantT quant;
  quant.scale = scale;
  quant.zero_point = zero_point;
  quantized(id).quant_params.Set(quant);
}

void PayloadBuilder::per_channel(uint32_t id, std::vector<float> scales, int32_t dim) {
  fb::PerChannelQuantT quant;
  quant.scale = std::move(scales);
  quant.channel_dim = dim;
  quantized(id).quant_params.Set(quant);
}

void PayloadBuilder::per_token(uint32_t id, int32_t nonbatch_dims) {
  fb::PerTokenDynamicQuantT quant;
  quant.num_nonbatch_dims = nonbatch_dims;
  quantized(id).quant_params.Set(quant);
}

void PayloadBuilder::unary(fb::XNodeUnion type, uint32_t in, uint32_t out, uint32_t flags) {
  fb::_XNNNode1x1T table;
  table.input_id = in;
  table.output_id = out;
  table.flags = flags;
  node(type, table);
}

void PayloadBuilder::binary(fb::XNodeUnion type, uint32_t a, uint32_t b, uint32_t out,
                            uint32_t flags) {
  fb::_XNNNode2x1T table;
  table.input1_id = a;
  table.input2_id = b;
  table.output_id = out;
  table.flags = flags;
  node(type, table);
}

void PayloadBuilder::bound(float min, float max) {
  auto bounds = std::make_unique<fb::OutputMinMaxT>();
  bounds->output_min = min;
  bounds->output_max = max;
  graph.xnodes.back()->output_min_max = std::move(bounds);
}

void PayloadBuilder::linear(uint32_t in, uint32_t filter, uint32_t bias, uint32_t out,
                            uint32_t flags) {
  fb::XNNFullyConnectedT table;
  table.input1_id = in;
  table.filter_id = filter;
  table.bias_id = bias;
  table.output_id = out;
  table.flags = flags;
  node(fb::XNodeUnion::XNNFullyConnected, table);
}

void PayloadBuilder::group_linear(uint32_t in, uint32_t out, uint32_t bias, uint32_t group) {
  const uint32_t depth = tensor(in).dims.back(), columns = tensor(out).dims.back();
  std::mt19937 engine(depth + columns);
  const auto random = [&] { return static_cast<uint8_t>(engine()); };
  std::vector<uint8_t> weights(size_t{columns} * depth / 2);
  std::ranges::generate(weights, random);
  fb::PerChannelGroupQuantT scales;
  for (uint32_t i = 0; i < columns * depth / group; ++i) {
    scales.scale.push_back(static_cast<float>(1 + random()) / 512);
  }
  scales.channel_dim = 0;
  scales.group_size = static_cast<int32_t>(group);
  const uint32_t filter = constant<uint8_t>({columns, depth}, weights, fb::XNNDatatype::qbint4);
  quantized(filter).quant_params.Set(scales);
  linear(in, filter, bias, out);
}

void PayloadBuilder::channel_linear(uint32_t in, uint32_t out, fb::XNNDatatype type,
                                    uint32_t bias) {
  const uint32_t depth = tensor(in).dims.back(), columns = tensor(out).dims.back();
  const bool has_4_bits = type == fb::XNNDatatype::qcint4;
  std::mt19937 engine(depth + columns);
  const auto random = [&] { return static_cast<uint8_t>(engine()); };
  std::vector<uint8_t> weights(size_t{columns} * depth / (has_4_bits ? 2 : 1));
  std::ranges::generate(weights, random);
  std::vector<float> scales(columns);
  for (float& scale : scales) {
    scale = static_cast<float>(1 + random()) / (has_4_bits ? 512.0f : 8192.0f);
  }
  const uint32_t filter = constant<uint8_t>({columns, depth}, weights, type);
  per_channel(filter, scales, 0);
  linear(in, filter, bias, out);
}

std::vector<std::byte> PayloadBuilder::flatbuffer_only() const {
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(fb::XNNGraph::Pack(builder, &graph), "XN01");
  const auto bytes = std::as_bytes(std::span(builder.GetBufferPointer(), builder.GetSize()));
  return {bytes.begin(), bytes.end()};
}

std::vector<std::byte> PayloadBuilder::bytes() const {
  constexpr size_t kHeader = 32;
  const auto flatbuffer = flatbuffer_only();
  const size_t padded = (flatbuffer.size() + 15) / 16 * 16;
  std::vector<std::byte> bytes(kHeader + padded + constants.size());
  bytes.reserve(bytes.size() + kReadPadding);
  const auto store = [&](size_t offset, auto number) {
    std::memcpy(bytes.data() + offset, &number, sizeof(number));
  };
  std::memcpy(bytes.data() + 4, "XH00", 4);
  store(8, uint16_t{30});
  store(10, static_cast<uint32_t>(kHeader));
  store(14, static_cast<uint32_t>(flatbuffer.size()));
  store(18, static_cast<uint32_t>(kHeader + padded));
  store(22, static_cast<uint64_t>(constants.size()));
  std::copy(flatbuffer.begin(), flatbuffer.end(), bytes.begin() + kHeader);
  std::copy(constants.begin(), constants.end(),
            bytes.end() - static_cast<std::ptrdiff_t>(constants.size()));
  return bytes;
}

HostTensor::HostTensor(ScalarType type, std::vector<int64_t> sizes, std::vector<uint8_t> dim_order,
                       Dynamism dynamism) {
  size_t bytes = element_size(type);
  for (int64_t size : sizes) bytes *= static_cast<size_t>(size);
  memory.resize(bytes + kReadPadding);
  value.variant() = Tensor::make(type, sizes, dim_order, memory.data(), bytes, dynamism).value();
}

Result<std::unique_ptr<Delegate>> make_delegate(const std::vector<std::byte>& payload,
                                                const NamedData* named_data,
                                                std::shared_ptr<BackendProgramState>* state,
                                                int threads, bool own_kernels) {
  std::shared_ptr<BackendProgramState> own;
  DelegateInit init;
  init.payload = payload;
  init.named_data = named_data;
  init.method = "forward";
  init.threads = threads;
  init.own_kernels = own_kernels;
  init.program_state = state == nullptr ? &own : state;
  return find_backend("XnnpackBackend")->init(init);
}

Status run(Delegate& delegate, std::vector<HostTensor*> arguments) {
  std::vector<Value*> values;
  for (HostTensor* argument : arguments) values.push_back(&argument->value);
  return delegate.execute(values);
}

}  // namespace edgewise::xnnpack
