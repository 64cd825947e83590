// Inputs in the caller's memory: where the plan proves it, and nowhere else.
#include <gtest/gtest.h>

#include <cstring>

#include "test_program.h"

namespace edgewise::test {
namespace {

using Floats = std::vector<float>;

// Values: 0 input at 0; 1 constant; 2 at 64; 3 at 0, an alias of 0; 4 at 96; 5 a list of 0; 6
// state; 7 a bool; 8 an input in no plan. Operators: 0 test::add.out. The delegate doubles.
FileSpec zero_copy_file(const std::vector<MakeInstruction>& instructions,
                        const std::vector<int32_t>& inputs = {0},
                        const std::vector<int32_t>& outputs = {2}) {
  const auto planned = [](uint64_t offset, uint32_t data = 0) {
    return tensor({.sizes = {4}, .memory_id = 1, .offset = offset, .data = data});
  };
  FileSpec spec = add_file();
  MethodSpec& method = spec.methods[0];
  method.values = {planned(0),
                   method.values[1],
                   planned(64),
                   planned(0),
                   planned(96),
                   tensor_list({0}),
                   planned(112, 1),
                   boolean(true),
                   tensor({.sizes = {4}, .dynamism = fb::TensorShapeDynamism::DYNAMIC_UNBOUND})};
  method.arenas = {0, 128};
  spec.segments.push_back(bytes_of<float>({1, 2, 3, 4}));
  spec.mutable_offsets = {0, 0};
  method.delegates = {{"TestBackend"}};
  method.instructions = instructions;
  method.inputs = inputs;
  method.outputs = outputs;
  return spec;
}

// Without the alias, which would forbid it at once.
FileSpec without_alias(FileSpec spec) {
  spec.methods[0].values[3] = none();
  return spec;
}

std::unique_ptr<Method> load_forward(const FileSpec& spec) {
  const auto program = load(spec);
  EXPECT_TRUE(program.ok()) << program.status().message();
  return std::move(program.value()->load_method("forward").value());
}

TEST(ZeroCopyInput, ReadsTheCallersMemoryOnce) {
  const auto method = load_forward(without_alias(zero_copy_file({delegate(0, {0, 2})})));
  Floats x = {1, 2, 3, 4};
  const Value value = over(x, ScalarType::kFloat, {4});
  ASSERT_TRUE(method->set_input_zero_copy(0, value).ok());
  x[0] = 5;
  ASSERT_TRUE(method->execute().ok());
  EXPECT_EQ(floats(method->output(0)), (Floats{10, 4, 6, 8}));
  EXPECT_FALSE(method->execute().ok()) << "it was given for one execution";
  // What is set afterwards does not reach the caller's memory, and stays.
  Floats y = {7, 7, 7, 7};
  ASSERT_TRUE(method->set_input_zero_copy(0, value).ok());
  ASSERT_TRUE(method->set_input(0, over(y, ScalarType::kFloat, {4})).ok());
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(method->execute().ok());
    EXPECT_EQ(floats(method->output(0)), (Floats{14, 14, 14, 14}));
  }
  EXPECT_EQ(x, (Floats{5, 2, 3, 4}));
  // A reset forgets it.
  ASSERT_TRUE(method->set_input_zero_copy(0, value).ok());
  ASSERT_TRUE(method->reset().ok());
  EXPECT_FALSE(method->execute().ok());
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
TEST(ZeroCopyInput, HasItsEarlierNameForOneVersion) {
  const auto method = load_forward(without_alias(zero_copy_file({delegate(0, {0, 2})})));
  std::vector<float> x = {1, 2, 3, 4};
  ASSERT_TRUE(method->lend_input(0, over(x, ScalarType::kFloat, {4})).ok());
  x = {5, 6, 7, 8};
  ASSERT_TRUE(method->execute().ok());
  EXPECT_EQ(method->output(0)->get<Tensor>()->data<float>()[0], 10);
}
#pragma GCC diagnostic pop

TEST(ZeroCopyInput, IsOverAfterAFailure) {
  FileSpec spec = without_alias(zero_copy_file({delegate(0, {0, 2})}));
  spec.methods[0].delegates = {{"TestBackend", fb::DataLocation::SEGMENT, 2}};
  spec.segments.push_back(bytes_of<char>({'l', 'a', 't', 'e'}));
  const auto method = load_forward(spec);
  Floats x = {1, 2, 3, 4};
  ASSERT_TRUE(method->set_input_zero_copy(0, over(x, ScalarType::kFloat, {4})).ok());
  EXPECT_EQ(method->execute().code(), Code::kBackend);
  EXPECT_EQ(method->execute().code(), Code::kInvalidArgument) << "the input is to be set again";
}

TEST(ZeroCopyInput, RefusesAsSettingDoes) {
  const auto method = load_forward(without_alias(zero_copy_file({delegate(0, {0, 2})})));
  Floats x(5);
  std::vector<int64_t> longs(4);
  for (const Value& value :
       {over(x, ScalarType::kFloat, {5}), over(longs, ScalarType::kLong, {4}), Value(true)}) {
    const Status in_place = method->set_input_zero_copy(0, value),
                 set = method->set_input(0, value);
    EXPECT_EQ(in_place.code(), Code::kInvalidArgument);
    EXPECT_EQ(in_place.message(), set.message());
  }
  EXPECT_EQ(method->set_input_zero_copy(1, Value(true)).message(),
            method->set_input(1, Value(true)).message());
}

struct ZeroCopyCase {
  const char* name;
  FileSpec spec;
  bool in_place;
};

TEST(ZeroCopyInput, FollowsThePlan) {
  const MakeInstruction doubles = delegate(0, {0, 2});
  const ZeroCopyCase cases[] = {
      {"a delegate", without_alias(zero_copy_file({doubles})), true},
      {"two delegates", without_alias(zero_copy_file({delegate(0, {0, 4}), doubles})), true},
      {"a kernel afterwards that has nothing to do with it",
       without_alias(zero_copy_file({doubles, kernel(0, {2, 1, 4, 4})})), true},
      {"a kernel", without_alias(zero_copy_file({kernel(0, {0, 1, 2, 2})})), false},
      {"a delegate and a kernel", without_alias(zero_copy_file({doubles, kernel(0, {0, 1, 4, 4})})),
       false},
      {"an alias that no instruction uses", zero_copy_file({doubles}), true},
      {"an alias that is written afterwards",
       zero_copy_file({doubles, kernel(0, {2, 1, 3, 3}), kernel(0, {3, 1, 4, 4})}), true},
      {"an alias that is written, an output",
       zero_copy_file({doubles, kernel(0, {2, 1, 3, 3})}, {0}, {3, 2}), true},
      {"an alias that is read", zero_copy_file({doubles, kernel(0, {3, 1, 4, 4})}), false},
      {"an alias that is read and written", zero_copy_file({doubles, kernel(0, {3, 1, 3, 3})}),
       false},
      {"an alias that is written before", zero_copy_file({kernel(0, {2, 1, 3, 3}), doubles}),
       false},
      {"an alias that a delegate may read", zero_copy_file({doubles, delegate(0, {3, 4})}), false},
      {"an alias that is an output", zero_copy_file({doubles}, {0}, {3, 2}), false},
      {"an alias that is an input", zero_copy_file({doubles}, {0, 3}), false},
      {"an alias and a jump", zero_copy_file({jump_false(7, 1), doubles}), false},
      {"written by a delegate", without_alias(zero_copy_file({doubles, delegate(0, {2, 0})})),
       false},
      {"an output", without_alias(zero_copy_file({doubles}, {0}, {0, 2})), false},
      {"twice an input", without_alias(zero_copy_file({doubles}, {0, 0})), false},
      {"moved from", without_alias(zero_copy_file({doubles, move(0, 4)})), false},
      {"moved to", without_alias(zero_copy_file({doubles, move(4, 0)})), false},
      {"freed", without_alias(zero_copy_file({doubles, free_value(0)})), false},
      {"beside a jump", without_alias(zero_copy_file({jump_false(7, 1), doubles})), true},
      {"state", without_alias(zero_copy_file({delegate(0, {6, 2})}, {6})), false},
      {"without a plan", without_alias(zero_copy_file({delegate(0, {8, 2})}, {8})), false},
  };
  for (const ZeroCopyCase& c : cases) {
    SCOPED_TRACE(c.name);
    const auto method = load_forward(c.spec);
    Floats x = {1, 2, 3, 4}, y = {5, 6, 7, 8};
    ASSERT_TRUE(method->set_input_zero_copy(0, over(x, ScalarType::kFloat, {4})).ok());
    for (size_t i = 1; i < c.spec.methods[0].inputs.size(); ++i) {
      ASSERT_TRUE(method->set_input(i, over(y, ScalarType::kFloat, {4})).ok());
    }
    // A change in between is seen where the memory is the caller's.
    x[0] = 100;
    ASSERT_TRUE(method->execute().ok());
    const size_t last = c.spec.methods[0].outputs.size() - 1;
    EXPECT_EQ(floats(method->output(last))[0] == 200, c.in_place);
    EXPECT_EQ(x, (Floats{100, 2, 3, 4})) << "it is only read";
  }
}

// Other orders of dimensions, and addresses that no float has, are copied.
TEST(ZeroCopyInput, CopiesWhatLiesOtherwise) {
  FileSpec spec = without_alias(zero_copy_file({delegate(0, {0, 2})}));
  for (const int value : {0, 2}) {
    spec.methods[0].values[value] =
        tensor({.sizes = {2, 2}, .memory_id = 1, .offset = static_cast<uint64_t>(value) * 32});
  }
  const auto method = load_forward(spec);
  Floats x = {1, 2, 3, 4, 0};
  ASSERT_TRUE(method->set_input_zero_copy(0, over(x, ScalarType::kFloat, {2, 2}, {1, 0})).ok());
  x[0] = 100;
  ASSERT_TRUE(method->execute().ok());
  EXPECT_EQ(floats(method->output(0)), (Floats{2, 6, 4, 8}));

  std::byte* odd = reinterpret_cast<std::byte*>(x.data()) + 1;
  const Floats numbers = {1, 2, 3, 4};
  std::memcpy(odd, numbers.data(), 16);
  const int64_t sizes[] = {2, 2};
  const Value value(
      Tensor::make(ScalarType::kFloat, sizes, {}, odd, 16, Dynamism::kStatic).value());
  ASSERT_TRUE(method->set_input_zero_copy(0, value).ok());
  std::memset(odd, 0, 16);
  ASSERT_TRUE(method->execute().ok());
  EXPECT_EQ(floats(method->output(0)), (Floats{2, 4, 6, 8}));
}

}  // namespace
}  // namespace edgewise::test
