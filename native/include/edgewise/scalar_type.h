// Element types of tensors. The numbers are those of the `.pte` format and of PyTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace edgewise {

enum class ScalarType : int8_t {
  kByte = 0,
  kChar = 1,
  kShort = 2,
  kInt = 3,
  kLong = 4,
  kHalf = 5,
  kFloat = 6,
  kDouble = 7,
  kBool = 11,
  kQInt8 = 12,
  kQUInt8 = 13,
  kQInt32 = 14,
  kBFloat16 = 15,
  kUInt16 = 27,
  kUInt32 = 28,
  kUInt64 = 29,
};

// Bytes of one element; 0 for a type that this runtime does not hold.
size_t element_size(ScalarType type);

// PyTorch's name: "float32", "int64", "bool", ...; "unknown" otherwise.
std::string_view to_string(ScalarType type);

}  // namespace edgewise
