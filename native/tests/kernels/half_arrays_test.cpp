// Conversions of arrays on every level that this CPU has, against values found among all that the
// type has.
#include "kernels/half_arrays.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "core/cpu_level.h"

namespace edgewise {
namespace {

struct Format {
  const char* name;
  int exponent_bits, mantissa_bits;
  void (*to_floats)(const uint16_t*, int64_t, float*);
  void (*from_floats)(const float*, int64_t, uint16_t*);
};

// IEEE's formula for the value of a number's bits.
double value_of(const Format& format, uint16_t bits) {
  const int most = (1 << format.exponent_bits) - 1, bias = most / 2;
  const int exponent = bits >> format.mantissa_bits & most;
  const int mantissa = bits & ((1 << format.mantissa_bits) - 1);
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == most) return mantissa ? std::nan("") : sign * INFINITY;
  const double fraction = std::ldexp(mantissa, -format.mantissa_bits) + (exponent != 0);
  return sign * std::ldexp(fraction, std::max(exponent, 1) - bias);
}

// The nearest number's bits, ties to an even mantissa; of what is beyond the largest, infinity's.
uint16_t nearest(const Format& format, const std::vector<double>& positive, float x) {
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  const double magnitude = std::abs(static_cast<double>(x));
  const auto infinity =
      static_cast<uint16_t>(((1 << format.exponent_bits) - 1) << format.mantissa_bits);
  const double largest = positive.back(), step = largest - positive[positive.size() - 2];
  if (magnitude >= largest + step / 2) return sign | infinity;
  const auto above = std::ranges::lower_bound(positive, magnitude) - positive.begin();
  if (above == 0) return sign;
  if (above == static_cast<long>(positive.size())) return sign | static_cast<uint16_t>(above - 1);
  const double down = magnitude - positive[above - 1], up = positive[above] - magnitude;
  const bool takes_lower = down < up || (down == up && (above - 1) % 2 == 0);
  return sign | static_cast<uint16_t>(takes_lower ? above - 1 : above);
}

class HalfArrays : public ::testing::TestWithParam<Format> {
 protected:
  void TearDown() override { limit_cpu(highest_); }
  const CpuLevel highest_ = cpu_level();
};

TEST_P(HalfArrays, BecomeFloats) {
  std::vector<uint16_t> bits(65536);
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint16_t>(i);
  for (const CpuLevel& level : cpu_levels()) {
    limit_cpu(level);
    for (const size_t count : {bits.size(), size_t{13}}) {
      std::vector<float> floats(count, 7);
      GetParam().to_floats(bits.data(), static_cast<int64_t>(count), floats.data());
      for (size_t i = 0; i < count; ++i) {
        const double right = value_of(GetParam(), bits[i]);
        if (std::isnan(right)) {
          ASSERT_TRUE(std::isnan(floats[i])) << level.name << " " << i;
        } else {
          ASSERT_EQ(std::bit_cast<uint32_t>(floats[i]),
                    std::bit_cast<uint32_t>(static_cast<float>(right)))
              << level.name << " " << i;
        }
      }
    }
  }
}

TEST_P(HalfArrays, ComeOfFloats) {
  const Format& format = GetParam();
  std::vector<double> positive;
  for (uint32_t bits = 0; bits < 0x8000; ++bits) {
    const double value = value_of(format, static_cast<uint16_t>(bits));
    if (std::isfinite(value)) positive.push_back(value);
  }
  // Numbers themselves, what lies halfway between two and beside that, and bits of all kinds.
  std::vector<float> floats;
  for (size_t i = 0; i + 1 < positive.size(); ++i) {
    const auto middle = static_cast<float>((positive[i] + positive[i + 1]) / 2);
    for (const float x : {static_cast<float>(positive[i]), middle, std::nextafter(middle, INFINITY),
                          std::nextafter(middle, 0.0f)}) {
      floats.push_back(x);
      floats.push_back(-x);
    }
  }
  for (uint32_t i = 0; i < 200'000; ++i) floats.push_back(std::bit_cast<float>(i * 21'474u));
  for (const float x :
       {65504.0f, 65519.99f, 65520.0f, std::numeric_limits<float>::max(), INFINITY}) {
    floats.push_back(x);
    floats.push_back(-x);
  }
  std::vector<uint16_t> right(floats.size());
  for (size_t i = 0; i < floats.size(); ++i) {
    if (!std::isnan(floats[i])) right[i] = nearest(format, positive, floats[i]);
  }
  for (const CpuLevel& level : cpu_levels()) {
    limit_cpu(level);
    std::vector<uint16_t> bits(floats.size());
    format.from_floats(floats.data(), static_cast<int64_t>(floats.size()), bits.data());
    for (size_t i = 0; i < floats.size(); ++i) {
      if (std::isnan(floats[i])) {
        ASSERT_TRUE(std::isnan(value_of(format, bits[i]))) << level.name << " " << i;
      } else {
        ASSERT_EQ(bits[i], right[i]) << level.name << " " << floats[i];
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Types, HalfArrays,
    ::testing::Values(Format{"Float16", 5, 10, float16_to_floats, floats_to_float16},
                      Format{"BFloat16", 8, 7, bfloat16_to_floats, floats_to_bfloat16}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace edgewise
