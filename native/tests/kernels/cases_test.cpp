// Every line of cases/*.txt: kernels of every level that this CPU has, against results of eager
// PyTorch, within the accuracy that they declare.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "kernels/case_text.h"
#include "kernels/levels.h"

namespace edgewise::testing {
namespace {

class Kernels : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { limit_kernel_level(GetParam()); }
  void TearDown() override { limit_kernel_level(kWideLevel); }
};

TEST_P(Kernels, MatchEagerPyTorch) {
  const auto folder = std::filesystem::path(__FILE__).parent_path() / "cases";
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".txt") continue;
    std::ifstream file(entry.path());
    CaseNames names;
    std::string line;
    for (size_t number = 1; std::getline(file, line); ++number) {
      if (line.empty() || line.front() == '#' || take_definition(line, names)) continue;
      ++count;
      const std::string difference = check_case(line, names, GetParam());
      EXPECT_EQ(difference, "") << entry.path().filename() << ":" << number << "\n"
                                << line.substr(0, 400);
    }
  }
  EXPECT_GT(count, 300u);
}

INSTANTIATE_TEST_SUITE_P(Levels, Kernels, ::testing::ValuesIn(kernel_levels()));

}  // namespace
}  // namespace edgewise::testing
