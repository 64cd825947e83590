#include "tools/inputs.h"

#include <charconv>
#include <cstring>
#include <optional>

namespace edgewise::tools {

namespace {

// "True", "3", "0.5"
std::optional<Value> parse_number(const std::string& text) {
  if (text == "True") return Value(true);
  if (text == "False") return Value(false);
  const char* end = text.data() + text.size();
  int64_t integer = 0;
  if (const auto [stop, failure] = std::from_chars(text.data(), end, integer);
      failure == std::errc() && stop == end) {
    return Value(integer);
  }
  double number = 0;
  if (const auto [stop, failure] = std::from_chars(text.data(), end, number);
      failure == std::errc() && stop == end) {
    return Value(number);
  }
  return std::nullopt;
}

// Uniform in [-1, 1): a linear congruential generator, the same everywhere.
class Generator {
 public:
  float next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<float>(state_ >> 40) / static_cast<float>(1 << 23) - 1.0f;
  }

 private:
  uint64_t state_ = 1;
};

// The upper half of a float is a bfloat16; a half float is made from it by hand, for
// numbers in [-1, 1) only: small ones become 0.
uint16_t to_half(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  const uint32_t exponent = (bits >> 23) & 0xff;
  if (exponent < 113) return 0;
  return static_cast<uint16_t>((bits >> 16 & 0x8000) | (exponent - 112) << 10 |
                               (bits >> 13 & 0x3ff));
}

void fill(const ValueInfo& info, Generator& generator, std::vector<std::byte>& bytes) {
  const size_t size = element_size(info.type);
  for (size_t at = 0; at + size <= bytes.size(); at += size) {
    const float value = generator.next();
    if (info.type == ScalarType::kFloat) {
      std::memcpy(&bytes[at], &value, sizeof(value));
    } else if (info.type == ScalarType::kDouble) {
      const double wide = value;
      std::memcpy(&bytes[at], &wide, sizeof(wide));
    } else if (info.type == ScalarType::kHalf) {
      const uint16_t half = to_half(value);
      std::memcpy(&bytes[at], &half, sizeof(half));
    } else if (info.type == ScalarType::kBFloat16) {
      std::memcpy(&bytes[at], reinterpret_cast<const char*>(&value) + 2, 2);
    } else if (info.type == ScalarType::kBool) {
      bytes[at] = std::byte{1};
    }
  }
}

}  // namespace

Result<Inputs> read_inputs(const MethodInfo& info, const std::vector<std::string>& arguments) {
  if (arguments.size() != info.inputs.size()) {
    return error(Code::kInvalidArgument,
                 "[%s] the method takes %zu inputs; got %zu; try --input %zu times",
                 info.name.c_str(), info.inputs.size(), arguments.size(), info.inputs.size());
  }
  Inputs inputs;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (info.inputs[i].kind != "Tensor") {
      std::optional<Value> number = parse_number(arguments[i]);
      if (!number) {
        return error(Code::kInvalidArgument, "[%s] input %zu must be %s; got '%s'",
                     info.name.c_str(), i, info.inputs[i].kind.c_str(), arguments[i].c_str());
      }
      inputs.values.push_back(*std::move(number));
      continue;
    }
    Result<Array> array = read_npy(arguments[i]);
    if (!array) return array.status();
    inputs.arrays.push_back(std::move(*array));
    inputs.values.push_back(Value(inputs.arrays.back().tensor));
  }
  return inputs;
}

Result<Inputs> make_inputs(const MethodInfo& info) {
  Inputs inputs;
  Generator generator;
  for (const ValueInfo& input : info.inputs) {
    if (input.kind != "Tensor") {
      inputs.values.emplace_back();
      continue;
    }
    Array array;
    array.bytes.resize(input.nbytes);
    fill(input, generator, array.bytes);
    Result<Tensor> tensor = Tensor::make(input.type, input.sizes, input.dim_order,
                                         array.bytes.data(), array.bytes.size(), input.dynamism);
    if (!tensor) return tensor.status().within(info.name);
    array.tensor = *tensor;
    inputs.arrays.push_back(std::move(array));
    inputs.values.push_back(Value(inputs.arrays.back().tensor));
  }
  return inputs;
}

}  // namespace edgewise::tools
