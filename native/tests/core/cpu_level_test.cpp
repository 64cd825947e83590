#include "core/cpu_level.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>

namespace edgewise {
namespace {

TEST(CpuLevel, AreNamedAndEachAllowsMore) {
  std::set<std::string> names;
  for (const CpuLevel& level : cpu_levels()) names.insert(level.name);
  EXPECT_EQ(names.size(), cpu_levels().size());
  ASSERT_FALSE(names.empty());
  for (size_t i = 1; i < cpu_levels().size(); ++i) {
    EXPECT_LE(cpu_levels()[i].target, cpu_levels()[i - 1].target);  // better ones are lower
  }
}

TEST(CpuLevel, IsTheHighestOrWhatTheEnvironmentSays) {
  const char* asked = std::getenv("EDGEWISE_CPU");
  const bool asks = asked != nullptr && *asked != '\0';
  EXPECT_STREQ(cpu_level().name, asks ? asked : cpu_levels().back().name);
  EXPECT_TRUE(check_cpu_level().ok());
}

TEST(CpuLevel, CanBeLimited) {
  const CpuLevel before = cpu_level();
  limit_cpu(cpu_levels().front());
  EXPECT_STREQ(cpu_level().name, cpu_levels().front().name);
  EXPECT_EQ(is_cpu_limited(), cpu_levels().size() > 1);
  limit_cpu(before);
  EXPECT_STREQ(cpu_level().name, before.name);
}

}  // namespace
}  // namespace edgewise
