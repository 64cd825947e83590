// Inputs: what is taken, what is refused with which words, layouts.
#include <gtest/gtest.h>

#include <numeric>

#include "test_program.h"

namespace edgewise::test {
namespace {

using fb::TensorShapeDynamism;

// Inputs that no instruction reads; outputs are the inputs.
std::unique_ptr<Method> load_inputs(const std::vector<MakeValue>& values,
                                    const std::vector<MakeInstruction>& instructions = {}) {
  FileSpec spec;
  MethodSpec method;
  method.values = values;
  for (size_t i = 0; i < values.size(); ++i) method.inputs.push_back(static_cast<int32_t>(i));
  method.outputs = method.inputs;
  method.instructions = instructions;
  method.arenas = {0, 4096};
  spec.methods = {method};
  const auto program = load(spec);
  EXPECT_TRUE(program.ok()) << program.status().message();
  return std::move(program.value()->load_method("forward").value());
}

TEST(Input, RefusesWithTheRule) {
  const auto method = load_inputs(
      {tensor({.sizes = {1, 3, 4, 4}, .memory_id = 1}),
       tensor({.sizes = {8, 4}, .dynamism = TensorShapeDynamism::DYNAMIC_BOUND}), number(1.5)});
  std::vector<float> x(1 * 3 * 5 * 4);
  std::vector<int64_t> longs(48);
  struct Case {
    size_t index;
    Value value;
    const char* message;
  };
  const Case cases[] = {
      {0, over(x, ScalarType::kFloat, {1, 3, 5, 4}),
       "[forward] input 0 must be float32[1, 3, 4, 4]; got float32[1, 3, 5, 4]; dimension 2 is "
       "static; try exporting the model with dynamic_shapes"},
      {0, over(x, ScalarType::kFloat, {1, 4, 4, 3}),
       "[forward] input 0 must be float32[1, 3, 4, 4]; got float32[1, 4, 4, 3]; try moving the "
       "channels: transpose(0, 3, 1, 2)"},
      {0, over(longs, ScalarType::kLong, {1, 3, 4, 4}),
       "[forward] input 0 must be float32[1, 3, 4, 4]; got int64[1, 3, 4, 4]; try converting it "
       "to float32"},
      {0, over(x, ScalarType::kFloat, {3, 4, 4}),
       "[forward] input 0 must be float32[1, 3, 4, 4]; got float32[3, 4, 4]; try a tensor of 4 "
       "dimensions"},
      {0, Value(int64_t{3}),
       "[forward] input 0 must be float32[1, 3, 4, 4]; got int; try a tensor"},
      {1, over(x, ScalarType::kFloat, {9, 4}),
       "[forward] input 1 must be float32 of at most [8, 4]; got float32[9, 4]; dimension 0 is "
       "too large; try exporting the model with a larger bound"},
      {2, over(x, ScalarType::kFloat, {1}), "[forward] input 2 must be float; got float32[1]"},
      {2, Value(true), "[forward] input 2 must be float; got True"},
      {3, Value(true), "[forward] the method has 3 inputs; got input 3"},
  };
  for (const Case& c : cases) {
    const Status status = method->set_input(c.index, c.value);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_EQ(status.message(), c.message);
  }
}

TEST(Input, TakesWhatFits) {
  const auto method = load_inputs(
      {tensor({.sizes = {8, 4}, .dynamism = TensorShapeDynamism::DYNAMIC_BOUND}), number(1.5),
       tensor({.sizes = {0}, .dynamism = TensorShapeDynamism::DYNAMIC_UNBOUND}), integer(1),
       boolean(false), text("a"), none()});
  std::vector<float> x = {1, 2, 3, 4, 5, 6};
  EXPECT_TRUE(method->set_input(0, over(x, ScalarType::kFloat, {3, 2})).ok());
  EXPECT_EQ(floats(method->output(0)), x);
  EXPECT_TRUE(method->set_input(0, over(x, ScalarType::kFloat, {0, 4})).ok());
  EXPECT_TRUE(method->set_input(1, Value(2.5)).ok());
  EXPECT_TRUE(method->set_input(1, Value(int64_t{2})).ok());
  EXPECT_EQ(*method->output(1)->get<double>(), 2.0);
  EXPECT_TRUE(method->set_input(2, over(x, ScalarType::kFloat, {6})).ok());
  EXPECT_EQ(floats(method->output(2)), x);
  EXPECT_TRUE(method->set_input(3, Value(int64_t{9})).ok());
  EXPECT_TRUE(method->set_input(4, Value(true)).ok());
  EXPECT_TRUE(method->set_input(5, Value(std::string("b"))).ok());
  EXPECT_TRUE(method->set_input(6, Value()).ok());
  EXPECT_EQ(*method->output(3)->get<int64_t>(), 9);
  EXPECT_TRUE(method->execute().ok());
}

TEST(Input, RefusesOtherNumbersThanExported) {
  FileSpec spec = add_file();
  spec.methods[0].values.push_back(integer(3));
  spec.methods[0].inputs = {0, 3};
  const auto method = std::move(load(spec).value()->load_method("forward").value());
  EXPECT_TRUE(method->set_input(1, Value(int64_t{3})).ok());
  EXPECT_EQ(method->set_input(1, Value(int64_t{4})).message(),
            "[forward] input 1 was fixed to 3 when the program was exported; got 4; try exporting "
            "it with the value as a tensor");
}

TEST(Input, MustAllBeSet) {
  const auto method = std::move(load(add_file()).value()->load_method("forward").value());
  EXPECT_NE(method->execute().message().find("input 0 is not"), std::string::npos);
  std::vector<float> x(4, 1);
  ASSERT_TRUE(method->set_input(0, over(x, ScalarType::kFloat, {4})).ok());
  EXPECT_TRUE(method->execute().ok());
  EXPECT_TRUE(method->execute().ok());  // its memory is its own
}

TEST(Input, MustBeSetAgainWhereItsMemoryIsReused) {
  FileSpec spec = add_file();
  spec.methods[0].values[2] = tensor({.sizes = {4}, .memory_id = 1, .offset = 8});
  const auto method = std::move(load(spec).value()->load_method("forward").value());
  std::vector<float> x(4, 1);
  ASSERT_TRUE(method->set_input(0, over(x, ScalarType::kFloat, {4})).ok());
  EXPECT_TRUE(method->execute().ok());
  EXPECT_NE(method->execute().message().find("reuses its memory"), std::string::npos);
}

TEST(Input, ConvertsLayouts) {
  const std::vector<uint8_t> channels_last = {0, 2, 3, 1};
  const auto method =
      load_inputs({tensor({.sizes = {1, 3, 2, 5}, .memory_id = 1, .dim_order = channels_last}),
                   tensor({.sizes = {1, 3, 2, 5}, .memory_id = 1, .offset = 1024})});
  std::vector<float> x(30);
  std::iota(x.begin(), x.end(), 0.0f);
  ASSERT_TRUE(method->set_input(0, over(x, ScalarType::kFloat, {1, 3, 2, 5})).ok());
  const std::vector<float> last = floats(method->output(0));
  for (size_t c = 0; c < 3; ++c) {
    for (size_t hw = 0; hw < 10; ++hw) EXPECT_EQ(last[hw * 3 + c], x[c * 10 + hw]);
  }
  // And back, from a tensor whose memory is channels-last; also the output itself.
  ASSERT_TRUE(method->set_input(1, *method->output(0)).ok());
  EXPECT_EQ(floats(method->output(1)), x);
}

}  // namespace
}  // namespace edgewise::test
