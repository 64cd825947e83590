// Every line of cases/*.txt: kernels against results of eager PyTorch.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "kernels/case_text.h"

namespace edgewise::testing {
namespace {

TEST(Kernels, MatchEagerPyTorch) {
  const auto folder = std::filesystem::path(__FILE__).parent_path() / "cases";
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".txt") continue;
    std::ifstream file(entry.path());
    std::string line;
    for (size_t number = 1; std::getline(file, line); ++number) {
      if (line.empty() || line.front() == '#') continue;
      ++count;
      const std::string difference = check_case(line);
      EXPECT_EQ(difference, "") << entry.path().filename() << ":" << number << "\n" << line;
    }
  }
  EXPECT_GT(count, 300u);
}

}  // namespace
}  // namespace edgewise::testing
