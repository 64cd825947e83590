// float16 and bfloat16 as bits, converted to and from float (round to nearest even).
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

// Arrays, by the CPU's own conversions where it has them.
inline void to_floats(const Half* source, int64_t count, float* target) {
  int64_t i = 0;
#if EDGEWISE_HAS_AVX2
  for (; i + 8 <= count; i += 8) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + i));
    _mm256_storeu_ps(target + i, _mm256_cvtph_ps(bits));
  }
#elif defined(__aarch64__)
  const auto* halves = reinterpret_cast<const __fp16*>(source);
  for (; i < count; ++i) target[i] = static_cast<float>(halves[i]);
#endif
  for (; i < count; ++i) target[i] = static_cast<float>(source[i]);
}
inline void to_halves(const float* source, int64_t count, Half* target) {
  int64_t i = 0;
#if EDGEWISE_HAS_AVX2
  for (; i + 8 <= count; i += 8) {
    const __m128i bits = _mm256_cvtps_ph(_mm256_loadu_ps(source + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(target + i), bits);
  }
#elif defined(__aarch64__)
  auto* halves = reinterpret_cast<__fp16*>(target);
  for (; i < count; ++i) halves[i] = static_cast<__fp16>(source[i]);
#endif
  for (; i < count; ++i) target[i] = Half(source[i]);
}

inline void to_floats(const BFloat16* source, int64_t count, float* target) {
  int64_t i = 0;
#if EDGEWISE_HAS_AVX2
  for (; i + 8 <= count; i += 8) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + i));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target + i),
                        _mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
#endif
  for (; i < count; ++i) target[i] = static_cast<float>(source[i]);
}
#if EDGEWISE_HAS_AVX2
// Rounded to the upper half; the lower one is left as it is.
inline __m256i rounded_words(const float* source) {
  const __m256 values = _mm256_loadu_ps(source);
  const __m256i words = _mm256_castps_si256(values);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(words, 16), _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF));
  const __m256 is_nan = _mm256_cmp_ps(values, values, _CMP_UNORD_Q);
  return _mm256_castps_si256(_mm256_blendv_ps(_mm256_castsi256_ps(_mm256_add_epi32(words, up)),
                                              _mm256_castsi256_ps(_mm256_set1_epi32(0x7FC00000)),
                                              is_nan));
}
#endif
inline void to_halves(const float* source, int64_t count, BFloat16* target) {
  int64_t i = 0;
#if EDGEWISE_HAS_AVX2
  for (; i + 16 <= count; i += 16) {
    const __m256i low = _mm256_srli_epi32(rounded_words(source + i), 16);
    const __m256i high = _mm256_srli_epi32(rounded_words(source + i + 8), 16);
    // Packing takes fours of both in turn.
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xD8);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target + i), packed);
  }
#endif
  for (; i < count; ++i) target[i] = BFloat16(source[i]);
}

}  // namespace HWY_NAMESPACE
}  // namespace edgewise
