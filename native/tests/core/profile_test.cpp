// What a profile says of a run, and that a run without one is the same.
#include "edgewise/profile.h"

#include <gtest/gtest.h>

#include "test_program.h"

namespace edgewise::test {
namespace {

struct Profiled {
  std::unique_ptr<Method> method;
  RunProfile profile;
  Status status;
};

Profiled run_profiled(const FileSpec& spec, std::vector<float> x) {
  Profiled result;
  auto method = load(spec).value()->load_method("forward");
  EXPECT_TRUE(method.ok()) << method.status().message();
  result.method = std::move(*method);
  const Value input = over(x, ScalarType::kFloat, {static_cast<int64_t>(x.size())});
  result.status = result.method->set_input(0, input);
  if (result.status.ok()) result.status = result.method->execute(&result.profile);
  return result;
}

std::vector<uint32_t> instructions(const RunProfile& profile) {
  std::vector<uint32_t> result;
  for (const ProfileEvent& event : profile.events()) {
    if (event.part == ProfileEvent::kWhole) result.push_back(event.instruction);
  }
  return result;
}

// Instructions follow each other without a gap, from the run's start to its end.
void expect_whole(const RunProfile& profile) {
  int64_t at = profile.begin();
  for (const ProfileEvent& event : profile.events()) {
    if (event.part != ProfileEvent::kWhole) continue;
    EXPECT_EQ(event.begin, at);
    EXPECT_LE(event.begin, event.end);
    at = event.end;
  }
  EXPECT_LE(at, profile.end());
}

TEST(Profile, TimesEveryInstruction) {
  FileSpec spec = add_file();
  spec.methods[0].instructions = {kernel(0, {0, 1, 2, 2}), move(2, 2), kernel(0, {2, 1, 2, 2})};
  const Profiled run = run_profiled(spec, {1, 2, 3, 4});
  ASSERT_TRUE(run.status.ok()) << run.status.message();
  EXPECT_EQ(floats(run.method->output(0)), (std::vector<float>{21, 42, 63, 84}));
  EXPECT_EQ(instructions(run.profile), (std::vector<uint32_t>{0, 1, 2}));
  EXPECT_EQ(run.profile.events().size(), 3u);
  expect_whole(run.profile);
  using Kind = InstructionInfo::Kind;
  const auto& known = run.method->info().instructions;
  ASSERT_EQ(known.size(), 3u);
  EXPECT_EQ(known[0].kind, Kind::kKernel);
  EXPECT_EQ(run.method->info().operators[known[0].target], "test::add.out");
  EXPECT_EQ(to_string(known[1].kind), "move");
}

TEST(Profile, TellsBranchesThatRan) {
  FileSpec spec = add_file();
  MethodSpec& method = spec.methods[0];
  method.values.push_back(boolean(false));  // 3
  method.values.push_back(boolean(false));  // 4: always false
  method.operators = {{"test::add", "out"}, {"test::positive", ""}};
  method.instructions = {kernel(1, {0, 3}), jump_false(3, 4), kernel(0, {0, 1, 2, 2}),
                         jump_false(4, 5), kernel(0, {0, 0, 2, 2})};
  const Profiled yes = run_profiled(spec, {1, 2, 3, 4});
  EXPECT_EQ(instructions(yes.profile), (std::vector<uint32_t>{0, 1, 2, 3}));
  expect_whole(yes.profile);
  const Profiled no = run_profiled(spec, {-1, 2, 3, 4});
  EXPECT_EQ(instructions(no.profile), (std::vector<uint32_t>{0, 1, 4}));
}

TEST(Profile, HasPartsOfDelegates) {
  FileSpec spec = add_file();
  spec.methods[0].delegates = {{"TestBackend"}};
  spec.methods[0].instructions = {kernel(0, {0, 1, 2, 2}), delegate(0, {0, 2})};
  const Profiled run = run_profiled(spec, {1, 2, 3, 4});
  ASSERT_TRUE(run.status.ok()) << run.status.message();
  EXPECT_EQ(floats(run.method->output(0)), (std::vector<float>{2, 4, 6, 8}));
  const auto& events = run.profile.events();
  ASSERT_EQ(events.size(), 3u);  // a kernel; a part, then its delegate
  EXPECT_EQ(events[1].instruction, 1u);
  ASSERT_NE(events[1].part, ProfileEvent::kWhole);
  const ProfilePart& part = run.profile.part(events[1].part);
  EXPECT_EQ(part.name, "double");
  EXPECT_EQ(part.nodes, (std::vector<uint32_t>{3}));
  ASSERT_EQ(part.counters.size(), 1u);
  EXPECT_EQ(part.counters[0].first, "numbers");
  EXPECT_EQ(part.counters[0].second, 4);
  EXPECT_LE(events[2].begin, events[1].begin);
  EXPECT_LE(events[1].end, events[2].end);
  expect_whole(run.profile);
}

TEST(Profile, StartsAnewWithEachRun) {
  FileSpec spec = add_file();
  spec.methods[0].instructions = {kernel(0, {0, 1, 2, 2})};
  Profiled run = run_profiled(spec, {1, 2, 3, 4});
  const int64_t first = run.profile.end();
  std::vector<float> x = {0, 0, 0, 0};
  ASSERT_TRUE(run.method->set_input(0, over(x, ScalarType::kFloat, {4})).ok());
  ASSERT_TRUE(run.method->execute(&run.profile).ok());
  EXPECT_EQ(run.profile.events().size(), 1u);
  EXPECT_GE(run.profile.begin(), first);
  EXPECT_EQ(floats(run.method->output(0)), (std::vector<float>{10, 20, 30, 40}));
}

TEST(Profile, LeavesOutTheInstructionThatFailed) {
  FileSpec spec = add_file();
  spec.methods[0].operators = {{"test::add", "out"}, {"test::fail", "out"}};
  spec.methods[0].instructions = {kernel(0, {0, 1, 2, 2}), kernel(1, {2, 2})};
  const Profiled run = run_profiled(spec, {1, 2, 3, 4});
  EXPECT_FALSE(run.status.ok());
  EXPECT_EQ(instructions(run.profile), (std::vector<uint32_t>{0}));
}

TEST(Profile, CountsWhatItDoesNotKeep) {
  RunProfile profile;
  profile.start(0);
  for (size_t i = 0; i < RunProfile::kMaxEvents + 3; ++i) profile.end_instruction();
  profile.add_part(ProfilePart{.name = "late", .nodes = {}, .counters = {}}, 0, 1);
  profile.stop();
  EXPECT_EQ(profile.events().size(), RunProfile::kMaxEvents);
  EXPECT_EQ(profile.dropped(), 4u);
  profile.start(0);
  EXPECT_EQ(profile.dropped(), 0u);
  EXPECT_TRUE(profile.events().empty());
}

TEST(Profile, TellsListsOfPartsApart) {
  const auto list = [](std::vector<std::string> names) {
    std::vector<ProfilePart> parts;
    for (std::string& name : names) {
      parts.push_back({.name = std::move(name), .nodes = {}, .counters = {}});
    }
    return std::make_shared<const std::vector<ProfilePart>>(std::move(parts));
  };
  const ProfileParts ab = list({"a", "b"}), none = list({}), c = list({"c"});
  RunProfile profile;
  profile.start(8);
  profile.add_part(ab, 1, 0, 1);
  profile.add_part(c, 0, 1, 2);
  profile.add_part(ab, 0, 2, 3);
  profile.add_part(c, 0, 3, 4);
  std::string names;
  for (const ProfileEvent& event : profile.events()) names += profile.part(event.part).name;
  EXPECT_EQ(names, "bcac");
  EXPECT_EQ(profile.events()[1].part, profile.events()[3].part);
}

}  // namespace
}  // namespace edgewise::test
