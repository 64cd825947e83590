#include <cinttypes>
#include <cmath>
#include <cstring>
#include <functional>

#include "backends/xnnpack/constants.h"
#include "backends/xnnpack/read_graph.h"

namespace edgewise::xnnpack {
namespace {

#define VALUE_ERROR(rule, ...)                              \
  error(Code::kInvalidProgram, "[xnnpack] value %u: " rule, \
        value->serialized_id __VA_OPT__(, ) __VA_ARGS__)

constexpr uint32_t kInputFlag = XNN_VALUE_FLAG_EXTERNAL_INPUT;
constexpr uint32_t kOutputFlag = XNN_VALUE_FLAG_EXTERNAL_OUTPUT;
// XNNPACK wants 4-bit weights as unsigned numbers around 8.
constexpr int32_t kZeroPoint4Bit = 8;

bool is_scale(float scale) { return scale > 0 && std::isnormal(scale); }

struct ValueReader {
  const Payload& payload;
  const NamedData* named_data;
  GraphValue* value;

  Status read_tensor(const fb::XNNTensorValue& tensor, uint32_t externals);
  Status read_data(uint32_t buffer);
  Status read_per_tensor(const fb::PerTensorQuant& quant);
  Status read_per_channel(const fb::PerChannelQuant& quant);
  Status read_per_block(const fb::PerChannelGroupQuant& quant);
  Status read_per_token(const fb::PerTokenDynamicQuant& quant);
  // Scales in constant `buffer`.
  // From the buffer that `quant` names, as they are, or converted from its list.
  template <typename Quant, typename T, typename Convert>
  Status read_scales(const Quant& quant, size_t count, std::vector<T>* scales, Convert convert);
};

Status ValueReader::read_tensor(const fb::XNNTensorValue& tensor, uint32_t externals) {
  value->serialized_id = tensor.id_out();
  const auto number = static_cast<int>(tensor.datatype());
  if (number <= 0 || number > static_cast<int>(DataType::kQbint8)) {
    return VALUE_ERROR("its datatype must be from 1 to 15; got %d", number);
  }
  value->type = static_cast<DataType>(number);
  if (tensor.dq_datatype() != fb::XNNDatatype::invalid) {
    return error(Code::kUnsupported,
                 "[xnnpack] value %u: dynamic quantization in its obsolete form is not supported; "
                 "try exporting the model again",
                 value->serialized_id);
  }
  const auto* dims = tensor.dims();
  const size_t rank = dims == nullptr ? 0 : dims->size();
  if (rank > kMaxRank || rank != tensor.num_dims()) {
    return VALUE_ERROR("it must have num_dims sizes, at most %zu; got %zu sizes and num_dims %u",
                       kMaxRank, rank, tensor.num_dims());
  }
  value->shape.rank = rank;
  for (size_t i = 0; i < rank; ++i) value->shape[i] = dims->Get(static_cast<uint32_t>(i));
  if (!value->shape.fits() || value->shape.has_zero()) {
    return VALUE_ERROR("its sizes must be from 1 to %zu, %zu elements at most; got %s", kMaxDim - 1,
                       kMaxElements, value->shape.text().c_str());
  }
  const uint32_t flags = tensor.flags();
  if ((flags & ~(kInputFlag | kOutputFlag)) != 0 || flags == (kInputFlag | kOutputFlag)) {
    return VALUE_ERROR("its flags must be 0, 1 (input) or 2 (output); got %u", flags);
  }
  value->is_input = flags == kInputFlag;
  value->is_output = flags == kOutputFlag;
  value->external_id = tensor.external_id();
  if (value->is_external() != (value->external_id != kNone) ||
      (value->is_external() && value->external_id >= externals)) {
    return VALUE_ERROR(
        "inputs and outputs, and no others, must have an external id below %u; got id %u, flags %u",
        externals, value->external_id, flags);
  }
  if (tensor.constant_buffer_idx() == 0) return {};
  if (value->is_external()) return VALUE_ERROR("an input or output must not be a constant");
  return read_data(tensor.constant_buffer_idx());
}

Status ValueReader::read_data(uint32_t buffer) {
  auto constant = find_constant(payload, named_data, buffer);
  if (!constant.ok()) return constant.status();
  const size_t needed = byte_size(value->type, value->shape);
  if (constant->bytes.size() < needed) {
    return VALUE_ERROR("its constant must have %zu bytes, for %s%s; got %zu", needed,
                       name_of(value->type), value->shape.text().c_str(), constant->bytes.size());
  }
  value->data = *constant;
  return {};
}

template <typename Quant, typename T, typename Convert>
Status ValueReader::read_scales(const Quant& quant, size_t count, std::vector<T>* scales,
                                Convert convert) {
  if (quant.scale_buffer_idx() == 0) {
    const auto* list = quant.scale();
    if (list == nullptr || list->size() != count) {
      return VALUE_ERROR("it must have %zu scales; got %u", count,
                         list == nullptr ? 0 : list->size());
    }
    for (const float scale : *list) scales->push_back(convert(scale));
    return {};
  }
  if (quant.num_scales() != count) {
    return VALUE_ERROR("it must have %zu scales; got %u", count, quant.num_scales());
  }
  auto constant = find_constant(payload, named_data, quant.scale_buffer_idx());
  if (!constant.ok()) return constant.status();
  if (constant->bytes.size() / sizeof(T) < count) {
    return VALUE_ERROR("it must have %zu scales; got %zu bytes of them", count,
                       constant->bytes.size());
  }
  scales->resize(count);
  std::memcpy(scales->data(), constant->bytes.data(), count * sizeof(T));
  if (constant->is_named) value->scale_source = *constant;
  return {};
}

Status ValueReader::read_per_tensor(const fb::PerTensorQuant& quant) {
  if (!is_per_tensor(value->type)) {
    return VALUE_ERROR("datatype %s must not have a scale for the whole tensor",
                       name_of(value->type));
  }
  value->scale = quant.scale();
  value->zero_point = quant.zero_point();
  const int32_t low = value->type == DataType::kQint8 ? -128 : 0;
  const int32_t high = value->type == DataType::kQint8    ? 127
                       : value->type == DataType::kQuint8 ? 255
                                                          : 0;
  if (!is_scale(value->scale) || value->zero_point < low || value->zero_point > high) {
    return VALUE_ERROR(
        "its scale must be a normal positive number, and its zero point from %d to %d; got %g, %d",
        low, high, static_cast<double>(value->scale), value->zero_point);
  }
  return {};
}

Status ValueReader::read_per_channel(const fb::PerChannelQuant& quant) {
  if (!is_per_channel(value->type)) {
    return VALUE_ERROR("datatype %s must not have scales for channels", name_of(value->type));
  }
  const int32_t dim = quant.channel_dim();
  if (dim < 0 || static_cast<size_t>(dim) >= value->shape.rank) {
    return VALUE_ERROR("its channel dimension must be from 0 to %zu; got %d", value->shape.rank - 1,
                       dim);
  }
  value->channel_dim = static_cast<uint32_t>(dim);
  if (value->type == DataType::kQcint4) value->zero_point = kZeroPoint4Bit;
  const size_t channels = value->shape[value->channel_dim];
  auto status = read_scales(quant, channels, &value->channel_scales, std::identity());
  if (!status.ok()) return status;
  for (size_t i = 0; i < channels; ++i) {
    if (!is_scale(value->channel_scales[i])) {
      return VALUE_ERROR("its scales must be normal positive numbers; got %g for channel %zu",
                         static_cast<double>(value->channel_scales[i]), i);
    }
  }
  return {};
}

Status ValueReader::read_per_block(const fb::PerChannelGroupQuant& quant) {
  const int32_t block = quant.group_size();
  const bool has_8_bits = value->type == DataType::kQbint8;
  if ((value->type != DataType::kQbint4 && !has_8_bits) || value->shape.rank != 2 ||
      quant.channel_dim() != 0) {
    return VALUE_ERROR(
        "scales for blocks need qbint4 or qbint8, two dimensions, channels first; got %s%s",
        name_of(value->type), value->shape.text().c_str());
  }
  if (block < XNN_MIN_BLOCKSIZE || block % XNN_MIN_BLOCKSIZE != 0 ||
      value->shape[1] % static_cast<size_t>(block) != 0) {
    return VALUE_ERROR("its blocks must be of a multiple of %d, and divide rows of %zu; got %d",
                       XNN_MIN_BLOCKSIZE, value->shape[1], block);
  }
  value->block_size = static_cast<uint32_t>(block);
  if (!has_8_bits) value->zero_point = kZeroPoint4Bit;
  const size_t count = value->shape[0] * (value->shape[1] / value->block_size);
  if (has_8_bits && quant.scale_buffer_idx() != 0) {
    return VALUE_ERROR("8-bit blocks must have a list of scales; got a buffer");
  }
  auto status = has_8_bits ? read_scales(quant, count, &value->channel_scales, std::identity())
                           : read_scales(quant, count, &value->block_scales, to_bfloat16);
  if (!status.ok()) return status;
  for (size_t i = 0; i < count; ++i) {
    const float scale =
        has_8_bits ? value->channel_scales[i] : from_bfloat16(value->block_scales[i]);
    if (!is_scale(scale)) {
      return VALUE_ERROR("its scales must be normal positive numbers; got %g for block %zu",
                         static_cast<double>(scale), i);
    }
  }
  return {};
}

Status ValueReader::read_per_token(const fb::PerTokenDynamicQuant& quant) {
  const int32_t dims = quant.num_nonbatch_dims();
  if (value->type != DataType::kQdint8) {
    return error(Code::kUnsupported,
                 "[xnnpack] value %u: only qdint8 can be quantized at run time; got %s",
                 value->serialized_id, name_of(value->type));
  }
  if (dims < 1 || static_cast<size_t>(dims) > value->shape.rank) {
    return VALUE_ERROR("its num_nonbatch_dims must be from 1 to %zu; got %d", value->shape.rank,
                       dims);
  }
  if (value->is_external() || value->is_constant()) {
    return VALUE_ERROR("what is quantized at run time must be internal");
  }
  value->nonbatch_dims = static_cast<uint32_t>(dims);
  return {};
}

Status read_value(const Payload& payload, const NamedData* named_data, const fb::XValue& source,
                  uint32_t externals, GraphValue* value) {
  ValueReader reader{payload, named_data, value};
  if (const auto* plain = source.xvalue_union_as_XNNTensorValue()) {
    if (auto status = reader.read_tensor(*plain, externals); !status.ok()) return status;
    if (is_float(value->type) || value->type == DataType::kInt32) return {};
    return error(Code::kUnsupported,
                 "[xnnpack] value %u: without quantization its datatype must be fp32, fp16, "
                 "bf16 or int32; got %s",
                 value->serialized_id, name_of(value->type));
  }
  const auto* quantized = source.xvalue_union_as_XNNQuantizedTensorValue();
  if (quantized == nullptr || quantized->tensor_value() == nullptr) {
    return error(Code::kInvalidProgram, "[xnnpack] a value must hold a tensor; got none");
  }
  if (auto status = reader.read_tensor(*quantized->tensor_value(), externals); !status.ok()) {
    return status;
  }
  if (const auto* quant = quantized->quant_params_as_PerTensorQuant()) {
    return reader.read_per_tensor(*quant);
  }
  if (const auto* quant = quantized->quant_params_as_PerChannelQuant()) {
    return reader.read_per_channel(*quant);
  }
  if (const auto* quant = quantized->quant_params_as_PerChannelGroupQuant()) {
    return reader.read_per_block(*quant);
  }
  if (const auto* quant = quantized->quant_params_as_PerTokenDynamicQuant()) {
    return reader.read_per_token(*quant);
  }
  return VALUE_ERROR("a quantized value must have scales; got none");
}

}  // namespace

Status read_values(const Payload& payload, const NamedData* named_data, Graph* graph,
                   ValueIndex* index) {
  const auto& sources = *payload.graph->xvalues();
  graph->values.resize(sources.size());
  for (uint32_t i = 0; i < sources.size(); ++i) {
    GraphValue* value = &graph->values[i];
    auto status = read_value(payload, named_data, *sources.Get(i), graph->externals, value);
    if (!status.ok()) return status;
    if (value->serialized_id == kNone || !index->emplace(value->serialized_id, i).second) {
      return VALUE_ERROR("ids of values must be unique, and not 2^32 - 1");
    }
  }
  return {};
}

}  // namespace edgewise::xnnpack
