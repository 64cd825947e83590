// Which instructions run as one call: those that spell an operator, if nobody misses what lies
// between them.
#include "core/instruction_fusion.h"

#include <gtest/gtest.h>

#include <functional>

namespace edgewise::test {
namespace {

using Kind = InstructionPlan::Kind;

TensorPlan tensor(std::vector<int64_t> sizes, size_t offset, ScalarType type = ScalarType::kFloat) {
  TensorPlan plan;
  plan.type = type;
  plan.sizes = std::move(sizes);
  plan.nbytes = element_size(type);
  for (const int64_t size : plan.sizes) plan.nbytes *= static_cast<size_t>(size);
  plan.arena = 1;
  plan.offset = offset;
  return plan;
}

// A method: `value` and `call` add to it and say what is added.
struct Builder {
  MethodPlan plan;

  uint32_t value(ValuePlan content) {
    plan.values.push_back(std::move(content));
    return static_cast<uint32_t>(plan.values.size() - 1);
  }
  // The last argument is the output, which is returned as well.
  void call(const std::string& name, std::vector<uint32_t> args) {
    args.push_back(args.back());
    plan.operators.push_back(name);
    plan.instructions.push_back(
        {Kind::kKernel, static_cast<uint32_t>(plan.operators.size() - 1), 0, std::move(args)});
  }
  void delegate(std::vector<uint32_t> args) {
    plan.instructions.push_back({Kind::kDelegate, 0, 0, std::move(args)});
  }
};

// Sum of a * b, vectors of 4 at 0 and 16, by products at 32; the result at 64.
enum : uint32_t { kA, kB, kProducts, kOut, kNothing, kNo };
Builder dot() {
  Builder b;
  b.plan.shared_arenas = {false, false};
  b.value(tensor({4}, 0));
  b.value(tensor({4}, 16));
  b.value(tensor({4}, 32));
  b.value(tensor({}, 64));
  b.value(std::monostate());
  b.value(false);
  b.call("aten::mul.out", {kA, kB, kProducts});
  b.call("aten::sum.IntList_out", {kProducts, kNothing, kNo, kNothing, kOut});
  b.plan.inputs = {kA, kB};
  b.plan.outputs = {kOut};
  return b;
}

TensorPlan& at(Builder& b, uint32_t value) { return std::get<TensorPlan>(b.plan.values[value]); }

struct Case {
  const char* name;
  std::function<void(Builder&)> change;
  bool fused;
};

const std::byte kByte{};

const Case kCases[] = {
    {"as it is", [](Builder&) {}, true},
    {"products are an output", [](Builder& b) { b.plan.outputs.push_back(kProducts); }, false},
    {"products are read again",
     [](Builder& b) {
       b.call("aten::abs.out", {kProducts, b.value(tensor({4}, 80))});
     },
     false},
    {"products are state",
     [](Builder& b) {
       at(b, kProducts).initial = {&kByte, 1};
     },
     false},
    {"products are in memory of other methods",
     [](Builder& b) {
       b.plan.shared_arenas = {false, true};
     },
     false},
    {"a view of the products is read",
     [](Builder& b) {
       const uint32_t view = b.value(tensor({2, 2}, 32));
       b.call("aten::abs.out", {view, b.value(tensor({2, 2}, 80))});
     },
     false},
    {"a view of the products is an output",
     [](Builder& b) {
       b.plan.outputs.push_back(b.value(tensor({2, 2}, 32)));
     },
     false},
    {"a delegate reads a view of the products",
     [](Builder& b) {
       b.delegate({b.value(tensor({2, 2}, 32)), b.value(tensor({2, 2}, 80))});
     },
     false},
    {"a delegate writes where the products were",
     [](Builder& b) {
       b.delegate({kOut, b.value(tensor({8}, 24))});
     },
     true},
    {"state in the products' memory is read first",
     [](Builder& b) {
       const uint32_t state = b.value(tensor({4}, 32));
       b.call("aten::abs.out", {state, kA});
       std::ranges::rotate(b.plan.instructions, b.plan.instructions.end() - 1);
     },
     false},
    {"their memory is written again",
     [](Builder& b) {
       b.call("aten::abs.out", {kA, b.value(tensor({4}, 40))});
     },
     true},
    {"their memory is written from itself",
     [](Builder& b) {
       const uint32_t again = b.value(tensor({4}, 40));
       b.call("aten::abs.out", {again, again});
     },
     false},
    {"a jump",
     [](Builder& b) {
       b.plan.instructions.push_back({Kind::kJumpFalse, kNo, 0, {}});
     },
     false},
    {"integers",
     [](Builder& b) {
       for (const uint32_t value : {kA, kB, kProducts, kOut}) {
         at(b, value).type = ScalarType::kInt;
       }
     },
     false},
    {"another type of result", [](Builder& b) { at(b, kOut).type = ScalarType::kDouble; }, false},
    {"dimensions are kept", [](Builder& b) { b.plan.values[kNo] = true; }, false},
    {"the flag is an input", [](Builder& b) { b.plan.inputs.push_back(kNo); }, false},
    {"one number is repeated", [](Builder& b) { b.plan.values[kB] = tensor({1}, 16); }, false},
    {"sizes that change", [](Builder& b) { at(b, kB).dynamism = Dynamism::kDynamicBound; }, false},
    {"some arguments too many",
     [](Builder& b) { b.plan.instructions[0].args.push_back(kProducts); }, false},
};

TEST(InstructionFusion, NobodyMissesWhatIsLeftOut) {
  for (const Case& test : kCases) {
    SCOPED_TRACE(test.name);
    Builder b = dot();
    test.change(b);
    const std::vector<FusedCall> found = fuse_instructions(b.plan);
    ASSERT_EQ(found.size(), test.fused ? 1u : 0u);
    if (!test.fused) continue;
    EXPECT_STREQ(found[0].kernel, "aten::dot.out");
    EXPECT_EQ(found[0].first, 0u);
    EXPECT_EQ(found[0].last, 1u);
    EXPECT_EQ(found[0].args, (std::vector<uint32_t>{kA, kB, kOut}));
    EXPECT_EQ(found[0].computed_in, kNone);
  }
}

TEST(InstructionFusion, AnOutputOverAnOperandIsComputedElsewhere) {
  Builder b = dot();
  at(b, kOut).offset = 4;
  const std::vector<FusedCall> found = fuse_instructions(b.plan);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].computed_in, kProducts);
  // Nowhere, if what is left out lies over an operand, too.
  at(b, kProducts).offset = 16;
  EXPECT_TRUE(fuse_instructions(b.plan).empty());
}

TEST(InstructionFusion, ElementsMayTakeTheirOperandsPlace) {
  Builder b;
  b.plan.shared_arenas = {false, false};
  const uint32_t x = b.value(tensor({4}, 0)), shifted = b.value(tensor({4}, 16)),
                 within = b.value(tensor({4}, 32)), gate = b.value(tensor({4}, 16)),
                 out = b.value(tensor({4}, 0));
  const uint32_t three = b.value(int64_t{3}), one = b.value(int64_t{1}), zero = b.value(int64_t{0}),
                 six = b.value(int64_t{6}), sixth = b.value(1.0 / 6);
  b.call("aten::add.Scalar_out", {x, three, one, shifted});
  b.call("aten::clamp.out", {shifted, zero, six, within});
  b.call("aten::mul.Scalar_out", {within, sixth, gate});
  b.call("aten::mul.out", {gate, x, out});
  b.plan.inputs = {x};
  b.plan.outputs = {out};
  std::vector<FusedCall> found = fuse_instructions(b.plan);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_STREQ(found[0].kernel, "aten::hardswish.out");
  EXPECT_EQ(found[0].args, (std::vector<uint32_t>{x, out}));
  EXPECT_EQ(found[0].computed_in, kNone);
  // The gate is wanted, too: three instructions instead of four. It lies over none of them.
  at(b, gate).offset = 48;
  b.plan.outputs.push_back(gate);
  found = fuse_instructions(b.plan);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_STREQ(found[0].kernel, "aten::hardsigmoid.out");
  EXPECT_EQ(found[0].last, 2u);
  // Another number is another function.
  b.plan.values[six] = int64_t{5};
  EXPECT_TRUE(fuse_instructions(b.plan).empty());
}

}  // namespace
}  // namespace edgewise::test
