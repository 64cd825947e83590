// What comparisons of kernel cases find, and how they tell it.
#include <gtest/gtest.h>

#include <string>

#include "kernels/case_text.h"
#include "kernels/cpu_dispatch.h"

namespace edgewise::testing {
namespace {

struct Wrong {
  const char* line;
  const char* says;  // "" if it is right
};

// abs, neg and maximum are exact, exp is right to two units, sums to the terms' magnitudes.
constexpr Wrong kWrong[] = {
    {"aten::neg.out f32[1]{0} -> f32[1]{-0}", ""},
    {"aten::neg.out f32[1]{0} -> f32[1]{0}", "expected 0, got -0; declared: the same"},
    {"aten::abs.out f64[1]{-0.0} -> f64[1]{-0.0}", "expected -0, got 0"},
    {"aten::abs.out f16[1]{nan} -> f16[1]{nan}", ""},
    {"aten::abs.out bf16[1]{nan} -> bf16[1]{1}", "expected 1, got nan"},
    {"aten::abs.out f32[1]{1} -> f32[1]{nan}", "expected nan, got 1"},
    {"aten::neg.out f32[1]{inf} -> f32[1]{inf}", "expected inf, got -inf"},
    {"aten::exp.out f32[1]{100} -> f32[1]{inf}", ""},
    {"aten::exp.out f32[1]{0} -> f32[1]{1.00000012}", ""},
    {"aten::exp.out f32[1]{0} -> f32[1]{1.000001}", "ulp away; declared: 2 ulp"},
    {"aten::exp.out f16[1]{0} -> f16[1]{1.002}", "2 ulp away; declared: 1 ulp"},
    {"aten::maximum.out f32[2, 1]{1, 2} f32[3]{0, 0, 5} -> f32[2, 3]{1, 1, 5, 2, 2, 6}",
     "element [1, 2]: expected 6, got 5, 2097152 ulp away; declared: the same; "
     "arguments there: 2, 5"},
    {"aten::maximum.out i64[1]{9007199254740993} i64[1]{0} -> i64[1]{9007199254740992}",
     "expected 9007199254740992, got 9007199254740993"},
    {"aten::sum.IntList_out f32[2]{1, -1} (0) false none -> f32[]{-0} ~ f64[]{2}", ""},
    {"aten::sum.IntList_out f32[2]{1, -1} (0) false none -> f32[]{1e-6} ~ f64[]{2}",
     "2 eps of the terms' magnitudes"},
    {"aten::sum.IntList_out f32[2]{0, 0} (0) false none -> f32[]{-0} ~ f64[]{0}",
     "expected -0, got 0"},
    {"aten::add.out f32[1]{1} f32[1]{1} 1 -> f32[2]{2, 2}", "expected float32[2], got float32[1]"},
};

TEST(Compare, FindsWhatIsWrong) {
  for (const Wrong& wrong : kWrong) {
    const std::string found = check_case(wrong.line, {});
    if (*wrong.says == '\0')
      EXPECT_EQ(found, "") << wrong.line;
    else
      EXPECT_NE(found.find(wrong.says), std::string::npos) << wrong.line << "\n" << found;
  }
}

}  // namespace
}  // namespace edgewise::testing
