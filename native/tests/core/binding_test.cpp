// Outputs in the caller's memory: where the plan proves it, and nowhere else.
#include <gtest/gtest.h>

#include "test_program.h"

namespace edgewise::test {
namespace {

constexpr size_t kNeeded = 16;
constexpr size_t kRoom = kNeeded + kReadPadding;

std::unique_ptr<Method> load_forward(const FileSpec& spec) {
  const auto program = load(spec);
  EXPECT_TRUE(program.ok()) << program.status().message();
  return std::move(program.value()->load_method("forward").value());
}

TEST(Binding, WritesToTheCaller) {
  const auto method = load_forward(add_file());
  alignas(64) std::byte memory[kRoom];
  ASSERT_TRUE(method->bind_output(0, memory, kNeeded));
  std::vector<float> x = {1, 2, 3, 4};
  ASSERT_TRUE(method->set_input(0, over(x, ScalarType::kFloat, {4})).ok());
  ASSERT_TRUE(method->execute().ok());
  const auto* written = reinterpret_cast<const float*>(memory);
  EXPECT_EQ(std::vector<float>(written, written + 4), (std::vector<float>{11, 22, 33, 44}));
  EXPECT_EQ(method->output(0)->get<Tensor>()->data<void>(), memory);
  // Stays over a reset; null undoes it.
  ASSERT_TRUE(method->reset().ok());
  EXPECT_EQ(method->output(0)->get<Tensor>()->data<void>(), memory);
  ASSERT_TRUE(method->bind_output(0, nullptr, 0));
  EXPECT_NE(method->output(0)->get<Tensor>()->data<void>(), memory);
}

TEST(Binding, RefusesSmallAndUnalignedMemory) {
  const auto method = load_forward(add_file());
  alignas(64) std::byte memory[kRoom + 1];
  EXPECT_FALSE(method->bind_output(0, memory, kNeeded - 1));
  EXPECT_FALSE(method->bind_output(0, memory + 1, kNeeded));
  EXPECT_FALSE(method->bind_output(1, memory, kNeeded));
}

struct BindingCase {
  const char* name;
  std::vector<MakeInstruction> instructions;
  std::vector<int32_t> outputs;
  bool bindable;
};

// Values: 0 input at 0; 1 constant; 2 at 64; 3 at 64, an alias of 2; 4 at 96; 5 state.
// Operators: 0 test::add.out, 1 test::add_.
TEST(Binding, FollowsThePlan) {
  const auto planned = [](uint64_t offset, uint32_t data = 0) {
    return tensor({.sizes = {4}, .memory_id = 1, .offset = offset, .data = data});
  };
  const BindingCase cases[] = {
      {"written once", {kernel(0, {0, 1, 2, 2})}, {2}, true},
      {"read later by a kernel", {kernel(0, {0, 1, 2, 2}), kernel(0, {2, 1, 4, 4})}, {2}, true},
      {"old content of its memory is dead",
       {kernel(0, {0, 1, 3, 3}), kernel(0, {3, 1, 4, 4}), kernel(0, {4, 1, 2, 2})},
       {2},
       true},
      {"by a delegate", {delegate(0, {0, 2})}, {2}, true},
      {"a delegate after others", {kernel(0, {0, 1, 4, 4}), delegate(0, {4, 2})}, {2}, true},
      {"an input", {kernel(0, {0, 1, 2, 2})}, {0}, false},
      {"a constant", {}, {1}, false},
      {"state", {kernel(0, {0, 1, 5, 5})}, {5}, false},
      {"twice an output", {kernel(0, {0, 1, 2, 2})}, {2, 2}, false},
      {"never written", {kernel(0, {0, 1, 3, 3})}, {2}, false},
      {"a view that is written through its base",
       {kernel(0, {0, 1, 3, 3}), kernel(0, {2, 1, 4, 4})},
       {2},
       false},
      {"an alias is read later", {kernel(0, {0, 1, 2, 2}), kernel(0, {3, 1, 4, 4})}, {2}, false},
      {"an alias is an output", {kernel(0, {0, 1, 2, 2})}, {2, 3}, false},
      {"written in place", {kernel(1, {2, 0, 2})}, {2}, false},
      {"read and written", {kernel(0, {2, 1, 2, 2})}, {2}, false},
      {"an alias is read by its writer", {kernel(0, {3, 1, 2, 2})}, {2}, false},
      {"a view that a delegate reads", {kernel(0, {0, 1, 3, 3}), delegate(0, {2, 4})}, {2}, false},
      {"read by a later delegate", {kernel(0, {0, 1, 2, 2}), delegate(0, {2, 4})}, {2}, false},
      {"moves", {kernel(0, {0, 1, 2, 2}), move(2, 4)}, {2}, false},
      {"jumps", {jump_false(6, 1), kernel(0, {0, 1, 2, 2})}, {2}, false},
      {"no tensor", {}, {6}, false},
  };
  for (const BindingCase& c : cases) {
    FileSpec spec = add_file();
    MethodSpec& method = spec.methods[0];
    method.values.insert(method.values.end(),
                         {planned(64), planned(96), planned(112, 1), boolean(true)});
    method.arenas = {0, 128};
    spec.segments.push_back(bytes_of<float>({1, 2, 3, 4}));
    spec.mutable_offsets = {0, 0};
    method.operators = {{"test::add", "out"}, {"test::add_", ""}};
    method.delegates = {{"TestBackend"}};
    method.instructions = c.instructions;
    method.outputs = c.outputs;
    alignas(64) std::byte memory[kRoom];
    EXPECT_EQ(load_forward(spec)->bind_output(0, memory, kNeeded), c.bindable) << c.name;
  }
}

}  // namespace
}  // namespace edgewise::test
