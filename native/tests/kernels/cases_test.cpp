// The lines of cases/*.txt, one test for each operator: its kernels of every level that this CPU
// has, against results of eager PyTorch, within the accuracy that they declare.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "kernels/case_files.h"
#include "kernels/cpu_dispatch.h"

namespace edgewise::testing {
namespace {

class Kernels : public ::testing::TestWithParam<std::string> {
 protected:
  void TearDown() override { limit_cpu(highest_); }

  const CpuLevel highest_ = cpu_level();
};

#ifdef __MINGW32__
// What MinGW's C library computes less exactly than the kernels declare: angles above 2^63, powers
// below 1e-100, lgamma of denormals.
const std::set<std::string> kLessExact = {"aten::cos", "aten::lgamma", "aten::pow", "aten::sin"};
#else
const std::set<std::string> kLessExact;
#endif

TEST_P(Kernels, MatchEagerPyTorch) {
  if (kLessExact.contains(GetParam())) GTEST_SKIP() << "not as exact in this C library";
  for (const CpuLevel& level : kernel_levels()) {
    limit_cpu(level);
    for (const CaseLine& line : kernel_cases().at(GetParam())) {
      EXPECT_EQ(check_case(line.text, *line.names), "")
          << line.origin << ", level " << level.name << "\n"
          << line.text.substr(0, 400);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Operators, Kernels, ::testing::ValuesIn(operators_of(kernel_cases())),
                         [](const auto& test) { return test_name_of(test.param); });

// So that no operator's test goes because its file does.
TEST(KernelCases, AreOfMostKernels) {
  size_t count = 0;
  std::set<std::string_view> kernels;
  for (const auto& [op, lines] : kernel_cases()) {
    count += lines.size();
    for (const CaseLine& line : lines) {
      kernels.insert(std::string_view(line.text).substr(0, line.text.find(' ')));
    }
  }
  EXPECT_GT(count, 2200u);
  EXPECT_GT(kernels.size(), 290u);
  for (const std::string_view kernel : kernels) {
    EXPECT_NE(find_kernel(kernel), nullptr) << kernel << " has cases and is no kernel";
  }
}

}  // namespace
}  // namespace edgewise::testing
