// Element types of the payload format, and what they are elsewhere.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "edgewise/scalar_type.h"
#include "xnnpack.h"

namespace edgewise::xnnpack {

// Types of values; the numbers are those of the payload.
enum class DataType : uint8_t {
  kInvalid = 0,
  kFp32 = 1,
  kFp16 = 2,
  kQint8 = 3,
  kQuint8 = 4,
  kQint32 = 5,
  kQcint8 = 6,
  kQcint32 = 7,
  kQcint4 = 8,
  kQdint8 = 9,
  kQbint4 = 10,
  kQpint8 = 11,
  kInt32 = 12,
  kPfp32 = 13,
  kBf16 = 14,
  kQbint8 = 15,  // not XNNPACK's: see dequantize_weights.h
};

const char* name_of(DataType type);
xnn_datatype to_xnn(DataType type);
// Bits of one element; 0 for kInvalid.
size_t bits_of(DataType type);
// Whether a tensor of `tensor` type can be what a delegate calls `type`.
bool accepts(DataType type, ScalarType tensor);

// One scale and zero point for the whole tensor.
inline bool is_per_tensor(DataType type) {
  return type == DataType::kQint8 || type == DataType::kQuint8 || type == DataType::kQint32;
}
inline bool is_per_channel(DataType type) {
  return type == DataType::kQcint8 || type == DataType::kQcint32 || type == DataType::kQcint4;
}
inline bool is_quantized_8bit(DataType type) {
  return type == DataType::kQint8 || type == DataType::kQuint8;
}
inline float from_bfloat16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }
// To the nearest, ties to even. NaN stays NaN.
inline uint16_t to_bfloat16(float number) {
  const auto bits = std::bit_cast<uint32_t>(number);
  const auto quiet_nan = static_cast<uint16_t>((bits >> 16) | 0x40);
  const auto rounded = static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  return (bits & 0x7fffffff) > 0x7f800000 ? quiet_nan : rounded;
}
// As XNNPACK rounds it.
template <typename Integer>
Integer quantized(float number, float scale, int32_t zero_point) {
  using Limits = std::numeric_limits<Integer>;
  const float steps = number / scale + static_cast<float>(zero_point);
  return static_cast<Integer>(std::lrint(std::clamp<float>(steps, Limits::min(), Limits::max())));
}
// Floating point of 16 bits.
inline bool is_half(DataType type) { return type == DataType::kFp16 || type == DataType::kBf16; }
inline bool is_float(DataType type) { return type == DataType::kFp32 || is_half(type); }

}  // namespace edgewise::xnnpack
