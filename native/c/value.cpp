#include "c/value.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <type_traits>
#include <utility>

#include "c/error.h"

namespace edgewise::c {
namespace {

static_assert(EDGEWISE_MAX_RANK == kMaxDims);
static_assert(EDGEWISE_FLOAT32 == static_cast<int>(ScalarType::kFloat));
static_assert(EDGEWISE_BOOL == static_cast<int>(ScalarType::kBool));
static_assert(EDGEWISE_UINT64 == static_cast<int>(ScalarType::kUInt64));
static_assert(EDGEWISE_DYNAMIC_UNBOUND == static_cast<int>(Dynamism::kDynamicUnbound));

// A number that is no type of this runtime becomes one that has no elements.
ScalarType to_scalar_type(int type) {
  const auto narrow = static_cast<int8_t>(std::clamp(type, -1, 127));
  return static_cast<ScalarType>(narrow);
}

edgewise_kind kind_of(std::string_view kind) {
  constexpr std::array<std::pair<std::string_view, edgewise_kind>, 6> kinds{{
      {"None", EDGEWISE_KIND_NONE},
      {"Tensor", EDGEWISE_KIND_TENSOR},
      {"int", EDGEWISE_KIND_INTEGER},
      {"float", EDGEWISE_KIND_NUMBER},
      {"bool", EDGEWISE_KIND_BOOLEAN},
      {"str", EDGEWISE_KIND_STRING},
  }};
  for (const auto& [name, value] : kinds) {
    if (name == kind) return value;
  }
  return EDGEWISE_KIND_LIST;
}

void describe(const Tensor& tensor, edgewise_value* result) {
  result->type = static_cast<edgewise_type>(tensor.type());
  result->dynamism = static_cast<edgewise_dynamism>(tensor.dynamism());
  result->rank = static_cast<uint32_t>(tensor.rank());
  std::ranges::copy(tensor.sizes(), result->sizes);
  std::ranges::copy(tensor.dim_order(), result->dim_order);
  result->nbytes = tensor.nbytes();
  result->data = tensor.data<void>();
}

Result<Value> tensor_from_c(const edgewise_value& value) {
  if (value.rank > EDGEWISE_MAX_RANK) {
    return error(Code::kInvalidArgument,
                 "[edgewise_value] a tensor has at most %d dimensions; "
                 "got %u",
                 EDGEWISE_MAX_RANK, value.rank);
  }
  const std::span sizes(value.sizes, value.rank);
  const std::span dim_order(value.dim_order, value.rank);
  Result<Tensor> tensor =
      Tensor::make(to_scalar_type(value.type), sizes, dim_order, value.data, 0, Dynamism::kStatic);
  if (!tensor) return tensor.status().within("edgewise_value");
  if (value.nbytes != tensor->nbytes()) {
    return error(Code::kInvalidArgument,
                 "[edgewise_value] `nbytes` of %s must be %zu; got %zu; try edgewise_make_tensor",
                 tensor->describe().c_str(), tensor->nbytes(), value.nbytes);
  }
  tensor->set_data(value.data, value.nbytes);
  return Value(std::move(*tensor));
}

Value string_from_c(const char* text) {
  Value value;
  value.variant().emplace<std::string>(text);
  return value;
}

}  // namespace

Result<Value> from_c(const edgewise_value& value) {
  switch (static_cast<int>(value.kind)) {
    case EDGEWISE_KIND_NONE:
      return Value();
    case EDGEWISE_KIND_TENSOR:
      return tensor_from_c(value);
    case EDGEWISE_KIND_INTEGER:
      return Value(value.integer);
    case EDGEWISE_KIND_NUMBER:
      return Value(value.number);
    case EDGEWISE_KIND_BOOLEAN:
      return Value(value.integer != 0);
    case EDGEWISE_KIND_STRING:
      if (value.text == nullptr) break;
      return string_from_c(value.text);
  }
  return error(
      Code::kInvalidArgument,
      "[edgewise_value] `kind` must be a tensor, a number or text that is set; got kind %d",
      static_cast<int>(value.kind));
}

void to_c(const Value& value, edgewise_value* result) {
  *result = {};
  result->kind = kind_of(value.kind());
  std::visit(
      [result](const auto& content) {
        using T = std::decay_t<decltype(content)>;
        if constexpr (std::is_same_v<T, Tensor>) describe(content, result);
        if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, bool>) {
          result->integer = content;
        }
        if constexpr (std::is_same_v<T, double>) result->number = content;
        if constexpr (std::is_same_v<T, std::string>) result->text = content.c_str();
      },
      value.variant());
}

void to_c(const ValueInfo& info, edgewise_value* result) {
  *result = {};
  result->kind = kind_of(info.kind);
  if (result->kind != EDGEWISE_KIND_TENSOR) return;
  result->type = static_cast<edgewise_type>(info.type);
  result->dynamism = static_cast<edgewise_dynamism>(info.dynamism);
  result->rank = static_cast<uint32_t>(info.sizes.size());
  std::ranges::copy(info.sizes, result->sizes);
  std::ranges::copy(info.dim_order, result->dim_order);
  result->nbytes = info.nbytes;
}

}  // namespace edgewise::c

extern "C" {

const char* edgewise_type_name(edgewise_type type) {
  return edgewise::to_string(edgewise::c::to_scalar_type(type)).data();
}

size_t edgewise_type_size(edgewise_type type) {
  return edgewise::element_size(edgewise::c::to_scalar_type(type));
}

edgewise_code edgewise_make_tensor(edgewise_value* value, edgewise_type type, const int64_t* sizes,
                                   size_t rank, void* data) {
  EDGEWISE_C_NOT_NULL(value);
  if (rank > 0) EDGEWISE_C_NOT_NULL(sizes);
  return edgewise::c::guarded([&] {
    using edgewise::Tensor;
    const edgewise::Result<Tensor> tensor = Tensor::make(
        edgewise::c::to_scalar_type(type), {sizes, rank}, {}, data, 0, edgewise::Dynamism::kStatic);
    if (!tensor) return tensor.status().within("edgewise_make_tensor");
    edgewise::c::to_c(edgewise::Value(tensor.value()), value);
    return edgewise::Status::ok_status();
  });
}

}  // extern "C"
