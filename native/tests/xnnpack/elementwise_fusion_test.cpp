// Fused elementwise nodes against the same in float64.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "backends/xnnpack/executor/elementwise_fusion.h"
#include "random_values.h"

namespace edgewise::xnnpack {
namespace {

using Doubles = std::vector<double>;

struct Case {
  const char* name;
  NodeKind kind;
  std::vector<Shape> inputs;
  Shape output;
  std::function<double(double, double)> expected;  // of elements that meet
  double tolerance = 0;                            // relative
  float scale = 1;                                 // of the inputs; 0: they are above 0
};

// The element of an input that is repeated along dimensions of size 1.
double element_at(const Shape& shape, const Floats& data, const Shape& out, size_t index) {
  size_t at = 0, step = 1;
  for (size_t d = out.rank; d-- > 0; index /= out[d]) {
    const size_t lacking = out.rank - shape.rank;
    if (d < lacking) continue;
    const size_t size = shape[d - lacking];
    if (size != 1) at += index % out[d] * step;
    step *= size;
  }
  return data[at];
}

const auto kAdd = [](double a, double b) { return a + b; };
const auto kSubtract = [](double a, double b) { return a - b; };
const auto kMultiply = [](double a, double b) { return a * b; };
const auto kSigmoid = [](double a, double) { return 1 / (1 + std::exp(-a)); };
const auto kRoot = [](double a, double) { return 1 / std::sqrt(a); };

Case unary(const char* name, NodeKind kind, size_t count, double (*expected)(double, double),
           double tolerance = 0, float scale = 1) {
  return {name, kind, {shape_of({count})}, shape_of({count}), expected, tolerance, scale};
}

const Case kCases[] = {
    {"Same",
     NodeKind::kAdd,
     {shape_of({3, 5, 7}), shape_of({3, 5, 7})},
     shape_of({3, 5, 7}),
     kAdd,
     6e-8},
    {"Row",
     NodeKind::kMultiply,
     {shape_of({4, 33}), shape_of({33})},
     shape_of({4, 33}),
     kMultiply,
     6e-8},
    {"Column",
     NodeKind::kMultiply,
     {shape_of({4, 33}), shape_of({4, 1})},
     shape_of({4, 33}),
     kMultiply,
     6e-8},
    {"Number",
     NodeKind::kSubtract,
     {shape_of({1}), shape_of({2, 17})},
     shape_of({2, 17}),
     kSubtract,
     6e-8},
    {"Heads",
     NodeKind::kMultiply,
     {shape_of({2, 3, 5, 16}), shape_of({2, 3, 1, 16})},
     shape_of({2, 3, 5, 16}),
     kMultiply,
     6e-8},
    {"BothRepeated",
     NodeKind::kAdd,
     {shape_of({4, 1, 6}), shape_of({1, 5, 1})},
     shape_of({4, 5, 6}),
     kAdd,
     6e-8},
    {"OneElement", NodeKind::kAdd, {shape_of({1, 1}), shape_of({1})}, shape_of({1, 1}), kAdd, 6e-8},
    unary(
        "Square", NodeKind::kSquare, 31, [](double a, double) { return a * a; }, 6e-8),
    unary("Negate", NodeKind::kNegate, 16, [](double a, double) { return -a; }),
    unary("Sigmoid", NodeKind::kSigmoid, 1000, kSigmoid, 4e-7),
    unary("SigmoidFarOut", NodeKind::kSigmoid, 1000, kSigmoid, 4e-7, 25),
    {"Root", NodeKind::kReciprocalSquareRoot, {shape_of({19})}, shape_of({19}), kRoot, 2e-7, 0},
};

// One node from inputs to a result that others read.
Floats run_node(const Case& test, const std::vector<Floats>& inputs) {
  Graph graph;
  std::vector<Shape> shapes = test.inputs;
  shapes.push_back(test.output);
  for (const Shape& shape : shapes) {
    GraphValue value;
    value.type = DataType::kFp32;
    value.shape = shape;
    graph.values.push_back(value);
  }
  graph.values.back().is_output = true;
  GraphNode node;
  node.kind = test.kind;
  for (uint32_t i = 0; i < inputs.size(); ++i) node.inputs.push_back(i);
  node.outputs = {static_cast<uint32_t>(inputs.size())};
  graph.nodes.push_back(node);
  auto step = ElementwiseFusion::make(graph, {0});
  EXPECT_TRUE(step.ok());
  EXPECT_TRUE((*step)->can_take(shapes));
  EXPECT_TRUE((*step)->reshape(shapes).ok());
  std::vector<MemoryBlock> blocks;
  std::vector<void*> addresses;
  for (const Shape& shape : shapes) {
    auto block = MemoryBlock::allocate(shape.elements() * sizeof(float));
    blocks.push_back(std::move(*block));
    addresses.push_back(blocks.back().data());
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::copy(inputs[i].begin(), inputs[i].end(), static_cast<float*>(addresses[i]));
  }
  EXPECT_TRUE((*step)->set_pointers(addresses, {}).ok());
  EXPECT_TRUE((*step)->run().ok());
  const auto* result = static_cast<const float*>(addresses.back());
  return {result, result + test.output.elements()};
}

class ElementwiseLoops : public testing::TestWithParam<Case> {};

TEST_P(ElementwiseLoops, ComputeTheSameAsFloat64) {
  const Case& test = GetParam();
  std::vector<Floats> inputs;
  for (const Shape& shape : test.inputs) {
    inputs.push_back(random_floats(shape.elements(), 1 + static_cast<uint32_t>(inputs.size())));
    for (float& x : inputs.back()) x = test.scale == 0 ? x * x + 1e-3f : x * test.scale;
  }
  const Floats results = run_node(test, inputs);
  for (size_t i = 0; i < results.size(); ++i) {
    const double a = element_at(test.inputs[0], inputs[0], test.output, i);
    const double b = inputs.size() < 2 ? 0 : element_at(test.inputs[1], inputs[1], test.output, i);
    const double want = test.expected(a, b);
    // Below, e^x is given as 0.
    EXPECT_LE(std::abs(results[i] - want), test.tolerance * std::abs(want) + 2e-38) << "at " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, ElementwiseLoops, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(ElementwiseLoops, SigmoidOfWhatIsNoNumber) {
  const float infinity = std::numeric_limits<float>::infinity();
  const Case test = unary("", NodeKind::kSigmoid, 4, kSigmoid);
  const Floats results = run_node(test, {{infinity, -infinity, std::nanf(""), 0}});
  EXPECT_EQ(results[0], 1);
  EXPECT_EQ(results[1], 0);
  EXPECT_TRUE(std::isnan(results[2]));
  EXPECT_EQ(results[3], 0.5f);
}

}  // namespace
}  // namespace edgewise::xnnpack
