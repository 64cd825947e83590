// float16 and bfloat16 as bits, converted to and from float (round to nearest even). Arrays of
// them: half_arrays.h.
#pragma once

#include "target.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {

struct Half {
  uint16_t bits = 0;

  Half() = default;
  explicit Half(float value) {
    const uint32_t word = std::bit_cast<uint32_t>(value);
    const uint32_t sign = (word >> 16) & 0x8000u;
    const uint32_t magnitude = word & 0x7FFFFFFFu;
    uint32_t result;
    if (magnitude > 0x7F800000u) {
      result = 0x7E00u;  // NaN
    } else if (magnitude >= 0x477FF000u) {
      result = 0x7C00u;  // rounds beyond the largest finite value
    } else if (magnitude < 0x38800000u) {
      // Subnormal: adding 0.5 puts the unit of the result into the last mantissa bit.
      const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
      result = std::bit_cast<uint32_t>(shifted) - 0x3F000000u;
    } else {
      const uint32_t odd = (magnitude >> 13) & 1u;
      result = (magnitude - 0x38000000u + 0x0FFFu + odd) >> 13;
    }
    bits = static_cast<uint16_t>(sign | result);
  }
  explicit operator float() const {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
    const uint32_t magnitude = bits & 0x7FFFu;
    if (magnitude >= 0x7C00u) {
      return std::bit_cast<float>(sign | 0x7F800000u | ((magnitude & 0x3FFu) << 13));
    }
    if (magnitude < 0x0400u) {
      const float value = static_cast<float>(magnitude) * 0x1p-24f;
      return sign ? -value : value;
    }
    return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
  }
};

struct BFloat16 {
  uint16_t bits = 0;

  BFloat16() = default;
  explicit BFloat16(float value) {
    const uint32_t word = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = (word + 0x7FFFu + ((word >> 16) & 1u)) >> 16;
    bits = static_cast<uint16_t>((word & 0x7FFFFFFFu) > 0x7F800000u ? 0x7FC0u : rounded);
  }
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace edgewise
