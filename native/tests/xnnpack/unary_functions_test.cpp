// Functions of vectors against the standard library in double.
#include "backends/xnnpack/executor/unary_functions.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace edgewise::xnnpack {
namespace {

struct Case {
  const char* name;
  UnaryFunction function;
  double (*exact)(double);
  float range;       // of the numbers that are tried
  double units = 1;  // in the last place
};

const Case kCases[] = {
    {"Exp", UnaryFunction::kExp, std::exp, 110},
    {"Sin", UnaryFunction::kSin, std::sin, 1e5},
    {"SinOfSmall", UnaryFunction::kSin, std::sin, 7},
    {"SinOfLarge", UnaryFunction::kSin, std::sin, 1e9},
    {"Cos", UnaryFunction::kCos, std::cos, 1e5},
    {"CosOfSmall", UnaryFunction::kCos, std::cos, 7},
    {"Log", UnaryFunction::kLog, std::log, 3e38f},
    {"LogNearOne", UnaryFunction::kLog, std::log, 2},
    {"LogOfDenormal", UnaryFunction::kLog, std::log, 1e-38f},
    {"Sqrt", UnaryFunction::kSqrt, std::sqrt, 3e38f},
    {"SqrtOfSmall", UnaryFunction::kSqrt, std::sqrt, 2},
    {"Rsqrt", UnaryFunction::kRsqrt, [](double x) { return 1 / std::sqrt(x); }, 3e38f, 1.5},
    {"RsqrtOfSmall", UnaryFunction::kRsqrt, [](double x) { return 1 / std::sqrt(x); }, 2, 1.5},
};

std::vector<float> numbers(float range, size_t count) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> x{0.0f, -0.0f, kInfinity, -kInfinity, NAN, 1.0f, -1.0f};
  for (size_t i = 0; x.size() < count; ++i) {
    x.push_back(range * (2 * static_cast<float>(i) / static_cast<float>(count) - 1));
  }
  return x;
}

class UnaryFunctions : public testing::TestWithParam<Case> {};

TEST_P(UnaryFunctions, AreNearFloat64) {
  const Case& c = GetParam();
  for (size_t count : {size_t{1}, size_t{3}, size_t{8}, size_t{37}, size_t{20011}}) {
    const std::vector<float> x = numbers(c.range, std::max<size_t>(count, 8));
    std::vector<float> y(count + 1, 7.0f);
    run_unary_function(c.function, x.data(), y.data(), count);
    EXPECT_EQ(y[count], 7.0f) << "nothing is written behind the end";
    for (size_t i = 0; i < count; ++i) {
      const double exact = c.exact(x[i]);
      const auto rounded = static_cast<float>(exact);
      if (!std::isfinite(rounded)) {
        EXPECT_EQ(std::isnan(y[i]), std::isnan(rounded)) << x[i];
        if (!std::isnan(rounded)) {
          EXPECT_EQ(y[i], rounded) << x[i];
        }
        continue;
      }
      const double unit =
          std::nextafter(std::abs(rounded), std::numeric_limits<float>::infinity()) -
          std::abs(rounded);
      EXPECT_LE(std::abs(y[i] - exact), c.units * unit) << x[i];
      if (x[i] == 0) {
        EXPECT_EQ(std::signbit(y[i]), std::signbit(rounded)) << x[i];
      }
    }
  }
}

TEST_P(UnaryFunctions, MayOverwriteTheirInput) {
  const Case& c = GetParam();
  std::vector<float> x = numbers(c.range, 101), y(101);
  run_unary_function(c.function, x.data(), y.data(), x.size());
  run_unary_function(c.function, x.data(), x.data(), x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    if (!std::isnan(y[i])) {
      EXPECT_EQ(x[i], y[i]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, UnaryFunctions, testing::ValuesIn(kCases),
                         [](const auto& of) { return of.param.name; });

}  // namespace
}  // namespace edgewise::xnnpack
