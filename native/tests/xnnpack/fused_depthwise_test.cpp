// Depthwise convolutions with what is around them in one step, against the same in float64, with
// the kernels of every vector unit that this CPU has.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "backends/xnnpack/executor/fused_depthwise.h"
#include "backends/xnnpack/executor/kernel_table.h"
#include "backends/xnnpack/executor/sme_kernels.h"
#include "random_values.h"
#include "scratch_memory.h"

namespace edgewise::xnnpack {
namespace {

using Doubles = std::vector<double>;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Spatial {
  uint32_t side = 1, stride = 1;
  uint32_t top = 0, left = 0, bottom = 0, right = 0;
};
constexpr Spatial kPointwise = {};
constexpr Spatial kSame3 = {3, 1, 1, 1, 1, 1};
constexpr Spatial kSame5 = {5, 1, 2, 2, 2, 2};
constexpr Spatial kHalf3 = {3, 2, 1, 1, 1, 1};
constexpr Spatial kHalf3Late = {3, 2, 0, 0, 1, 1};
constexpr Spatial kHalf5 = {5, 2, 2, 2, 2, 2};

// What differs from a 1x1 convolution, the depthwise one and another 1x1 convolution.
enum Parts : unsigned {
  kAsItIs = 0,
  kNoBefore = 1,
  kNoAfter = 2,
  kSwishBefore = 4,
  kSwish = 8,
  kResidual = 16,
  kNoBias = 32,
  kRelu6 = 64,   // of the first two convolutions
  kBounds = 128  // likewise: from -0.5 to 1
};

struct Case {
  const char* name;
  size_t batch, height, width;
  std::vector<size_t> channels;  // of the input; between; of the output
  Spatial depthwise;
  unsigned parts = kAsItIs;
  int threads = 1;
  Spatial before = kPointwise;

  bool has(Parts part) const { return (parts & part) != 0; }
  float min() const { return has(kRelu6) ? 0 : has(kBounds) ? -0.5f : -kInfinity; }
  float max() const { return has(kRelu6) ? 6 : has(kBounds) ? 1 : kInfinity; }
};

// Numbers of a value, NHWC.
struct Image {
  Shape shape;
  Doubles data;
  double at(size_t n, size_t y, size_t x, size_t c) const {
    if (y >= shape[1] || x >= shape[2]) return 0;
    return data[((n * shape[1] + y) * shape[2] + x) * shape[3] + c];
  }
};

// The nodes one after the other, with the results that they should have.
class Block {
 public:
  explicit Block(const Case& test) : test_(test) {
    const auto& channels = test.channels;
    size_t at = 0;
    value(shape_of({test.batch, test.height, test.width, channels[at]}));
    input = random_floats(graph.values[0].shape.elements(), 1);
    image_ = {graph.values[0].shape, Doubles(input.begin(), input.end())};
    if (!test.has(kNoBefore)) {
      convolve(test.before, channels[at], channels[at + 1], false, true);
      ++at;
      if (test.has(kSwishBefore)) swish();
    }
    convolve(test.depthwise, channels[at], channels[at], true, true);
    if (test.has(kSwish)) swish();
    if (!test.has(kNoAfter)) {
      convolve(kPointwise, channels[at], channels[at + 1], false, false);
      if (test.has(kResidual)) add();
    }
    output = last_;
    graph.inputs = {0};
    if (test.has(kResidual)) graph.inputs.push_back(residual_value);
    graph.outputs = {output};
    graph.values[output].is_output = true;
  }

  Graph graph;
  Floats input, residual;
  uint32_t residual_value = kNone;
  uint32_t output = 0;
  const Doubles& expected() const { return image_.data; }

 private:
  uint32_t value(const Shape& shape) {
    GraphValue value;
    value.type = DataType::kFp32;
    value.shape = shape;
    graph.values.push_back(value);
    return static_cast<uint32_t>(graph.values.size() - 1);
  }
  uint32_t constant(const Shape& shape, float size) {
    const uint32_t id = value(shape);
    auto data = std::make_shared<Floats>(random_floats(shape.elements(), 10 + id));
    for (float& x : *data) x *= size;
    graph.values[id].data.bytes = std::as_bytes(std::span(*data));
    constants_.push_back(data);
    return id;
  }
  const float* data(uint32_t id) const {
    return reinterpret_cast<const float*>(graph.values[id].data.bytes.data());
  }
  void convolve(const Spatial& spatial, size_t ins, size_t outs, bool is_depthwise,
                bool is_bounded) {
    const size_t side = spatial.side;
    const size_t depth = side * side * (is_depthwise ? 1 : ins);
    const uint32_t filter =
        constant(is_depthwise ? shape_of({1, side, side, outs}) : shape_of({outs, side, side, ins}),
                 1 / std::sqrt(static_cast<float>(depth)));
    const uint32_t bias = test_.has(kNoBias) ? kNone : constant(shape_of({outs}), 1);
    const Shape& in = image_.shape;
    const Shape out =
        shape_of({in[0], (in[1] + spatial.top + spatial.bottom - side) / spatial.stride + 1,
                  (in[2] + spatial.left + spatial.right - side) / spatial.stride + 1, outs});
    GraphNode node;
    node.kind = is_depthwise ? NodeKind::kDepthwiseConv2d : NodeKind::kConv2d;
    node.inputs = {last_, filter, bias};
    node.window = {.pad_top = spatial.top,
                   .pad_right = spatial.right,
                   .pad_bottom = spatial.bottom,
                   .pad_left = spatial.left,
                   .kernel = {spatial.side, spatial.side},
                   .stride = {spatial.stride, spatial.stride},
                   .groups = static_cast<uint32_t>(is_depthwise ? outs : 1),
                   .group_inputs = static_cast<uint32_t>(is_depthwise ? 1 : ins),
                   .group_outputs = static_cast<uint32_t>(is_depthwise ? 1 : outs)};
    if (is_bounded) {
      node.min = test_.min();
      node.max = test_.max();
    }
    last_ = value(out);
    node.outputs = {last_};
    graph.nodes.push_back(node);
    Image result{out, Doubles(out.elements())};
    for (size_t i = 0; i < result.data.size(); ++i) {
      const size_t c = i % outs, x = i / outs % out[2], y = i / outs / out[2] % out[1];
      double sum = bias == kNone ? 0 : data(bias)[c];
      for (size_t tap = 0; tap < side * side; ++tap) {
        const size_t from_y = y * spatial.stride + tap / side - spatial.top;
        const size_t from_x = x * spatial.stride + tap % side - spatial.left;
        const size_t n = i / outs / out[2] / out[1];
        if (is_depthwise) {
          sum += image_.at(n, from_y, from_x, c) * data(filter)[tap * outs + c];
          continue;
        }
        for (size_t k = 0; k < ins; ++k) {
          sum += image_.at(n, from_y, from_x, k) * data(filter)[(c * side * side + tap) * ins + k];
        }
      }
      result.data[i] = std::min(std::max(sum, double{node.min}), double{node.max});
    }
    image_ = std::move(result);
  }
  void swish() {
    GraphNode node;
    node.kind = NodeKind::kHardswish;
    node.inputs = {last_};
    last_ = value(image_.shape);
    node.outputs = {last_};
    graph.nodes.push_back(node);
    for (double& x : image_.data) x *= std::min(std::max(x + 3, 0.0), 6.0) / 6;
  }
  void add() {
    residual_value = value(image_.shape);
    residual = random_floats(image_.data.size(), 5);
    GraphNode node;
    node.kind = NodeKind::kAdd;
    node.inputs = {last_, residual_value};
    last_ = value(image_.shape);
    node.outputs = {last_};
    graph.nodes.push_back(node);
    for (size_t i = 0; i < residual.size(); ++i) image_.data[i] += residual[i];
  }

  const Case& test_;
  Image image_;
  uint32_t last_ = 0;
  std::vector<std::shared_ptr<Floats>> constants_;
};

const Case kCases[] = {
    {"OnePixel", 1, 1, 1, {16, 32, 16}, kSame3},
    {"OneRow", 1, 1, 20, {16, 32, 16}, kSame3},
    {"OneColumn", 1, 20, 1, {16, 32, 16}, kSame3},
    {"OddChannels", 1, 6, 7, {5, 17, 3}, kSame3},
    {"TailOfAPanel", 1, 9, 30, {8, 72, 24}, kSame3},
    {"FiveTaps", 1, 9, 11, {8, 40, 24}, kSame5},
    {"Stride", 1, 11, 14, {16, 96, 24}, kHalf3},
    {"StrideOfFiveTaps", 1, 14, 13, {16, 96, 40}, kHalf5},
    {"StrideWithoutTheLastColumn", 1, 8, 8, {16, 32, 16}, {3, 2, 0, 0, 0, 0}},
    {"PaddedRightAndBottom", 1, 8, 8, {16, 32, 16}, kHalf3Late},
    {"WidelyPadded", 1, 4, 4, {16, 32, 16}, {3, 1, 2, 2, 2, 2}},
    {"WideImage", 1, 20, 130, {8, 32, 16}, kSame3},
    {"Batch", 3, 9, 8, {16, 40, 24}, kSame3},
    {"NoBias", 1, 8, 9, {16, 48, 24}, kSame3, kNoBias},
    {"Bounds", 1, 8, 9, {16, 48, 24}, kSame3, kBounds},
    {"Residual", 2, 15, 14, {16, 96, 16}, kSame3, kResidual | kRelu6},
    {"ResidualOfATail", 1, 15, 14, {24, 144, 24}, kSame3, kResidual | kRelu6, 2},
    {"Hardswish", 1, 12, 10, {16, 72, 24}, kSame5, kSwishBefore | kSwish},
    {"HardswishOfBounds", 1, 12, 10, {16, 72, 24}, kSame3, kSwishBefore | kSwish | kBounds},
    {"NoAfter", 1, 14, 14, {16, 72}, kSame3, kNoAfter | kSwish},
    {"NoAfter3Threads", 1, 14, 14, {40, 120}, kSame5, kNoAfter | kSwishBefore | kSwish, 3},
    {"NoBefore", 1, 30, 31, {40, 16}, kSame3, kNoBefore | kRelu6, 2},
    {"Alone", 2, 15, 17, {40}, kSame3, kNoBefore | kNoAfter | kSwish},
    {"Alone2Threads", 1, 31, 17, {96}, kHalf5, kNoBefore | kNoAfter | kBounds, 2},
    {"FewRows2Threads", 1, 7, 7, {96, 192, 96}, kSame3, kResidual | kRelu6, 2},
    {"UnevenPanels2Threads", 1, 10, 9, {24, 144, 32}, kHalf3, kRelu6, 2},
    {"SmallImage8Threads", 1, 14, 14, {64, 384, 64}, kSame3, kResidual | kRelu6, 8},
    {"Bands5Threads", 1, 60, 20, {16, 64, 24}, kSame3, kRelu6, 5},
    {"BandsWithAStride3Threads", 2, 90, 26, {16, 64, 40}, kHalf5, kRelu6, 3},
    {"Colours", 1, 33, 30, {3, 32, 16}, kSame3, kRelu6, 2, kHalf3},
    {"ColoursSwish", 1, 32, 32, {3, 16}, kHalf3, kNoAfter | kSwishBefore, 1, kHalf3Late},
    {"GreyImage", 1, 20, 21, {1, 24, 16}, kSame3, kAsItIs, 1, kSame5},
};

std::string name_of_case(const testing::TestParamInfo<Case>& info) { return info.param.name; }
class OwnDepthwise : public testing::TestWithParam<Case> {};

TEST_P(OwnDepthwise, MatchesFloat64) {
  const Case& test = GetParam();
  Block block(test);
  const auto shapes = block.graph.serialized_shapes();
  const Readers readers(block.graph);
  const auto nodes =
      depthwise_nodes(block.graph, shapes, readers, std::vector<bool>(block.graph.nodes.size()), 0);
  ASSERT_TRUE(nodes);
  ASSERT_EQ(nodes->nodes.size(), block.graph.nodes.size());
  ASSERT_EQ(nodes->last_value(), block.output);
  for (const FloatKernels* kernels : all_float_kernels()) {
    SCOPED_TRACE(kernels->name);
    auto state = ProgramState::make(test.threads);
    ASSERT_TRUE(state.ok()) << state.status().message();
    auto step = FusedDepthwise::make(block.graph, *nodes, *kernels, **state);
    ASSERT_TRUE(step.ok()) << step.status().message();
    ASSERT_TRUE((*step)->reshape(shapes).ok());
    // What was there before does not show, and nothing but the output is written.
    constexpr size_t kAround = 64;
    constexpr float kUntouched = 1234;
    ScratchMemory scratch(**step, static_cast<size_t>(test.threads));
    Floats output(block.expected().size() + 2 * kAround, kUntouched);
    std::vector<void*> addresses(block.graph.values.size());
    Floats in = block.input, added = block.residual;
    addresses[0] = in.data();
    if (test.has(kResidual)) addresses[block.residual_value] = added.data();
    addresses[block.output] = output.data() + kAround;
    ASSERT_TRUE((*step)->set_pointers(addresses, scratch).ok());
    for (int run = 0; run < 2; ++run) ASSERT_TRUE((*step)->run().ok());
    double worst = 0, largest = 0;
    for (size_t i = 0; i < block.expected().size(); ++i) {
      const double right = block.expected()[i];
      const double difference = std::abs(double{output[kAround + i]} - right);
      worst = difference <= worst ? worst : difference;  // NaN stays
      largest = std::max(largest, std::abs(right));
    }
    // Three sums, of some hundred products at most.
    EXPECT_LE(worst, 1e-6 * std::max(largest, 1.0));
    for (size_t i = 0; i < kAround; ++i) {
      ASSERT_EQ(output[i], kUntouched);
      ASSERT_EQ(output[output.size() - 1 - i], kUntouched);
    }
    EXPECT_TRUE(scratch.is_kept());
    EXPECT_EQ(in, block.input);
  }
}
INSTANTIATE_TEST_SUITE_P(All, OwnDepthwise, testing::ValuesIn(kCases), name_of_case);

// Of the step that runs `node`; none if XNNPACK does.
std::vector<size_t> nodes_with(const Block& block, const FloatKernels* kernels, size_t node) {
  for (const Fusion& fusion :
       choose_kernels(block.graph, block.graph.serialized_shapes(), kernels).fusions) {
    if (std::count(fusion.nodes.begin(), fusion.nodes.end(), node) != 0) return fusion.nodes;
  }
  return {};
}

// What the step of a depthwise convolution takes of a graph, of the kernels with the widest
// vectors.
TEST(Depthwise, TakesWhatItIsFor) {
  if (sme_kernels(DataType::kFp32) != nullptr) GTEST_SKIP() << "alone, beside SME2's";
  struct Rule {
    const char* name;
    size_t nodes;  // of the step; 0: none
    void (*change)(Block*);
  };
  const auto nothing = [](Block*) {};
  const Rule rules[] = {
      {"as it is", 6, nothing},
      {"dilation", 0, [](Block* b) { b->graph.nodes[2].window.dilation[0] = 2; }},
      {"kernel", 0, [](Block* b) { b->graph.nodes[2].window.kernel[1] = 5; }},
      {"flags", 0, [](Block* b) { b->graph.nodes[2].flags = 1; }},
      {"multiplier", 0, [](Block* b) { b->graph.nodes[2].window.group_outputs = 2; }},
      {"first one in groups", 4, [](Block* b) { b->graph.nodes[0].window.groups = 2; }},
      {"last one in groups", 4, [](Block* b) { b->graph.nodes[4].window.groups = 2; }},
      {"first result is an output", 4,
       [](Block* b) { b->graph.values[b->graph.nodes[1].outputs[0]].is_output = true; }},
      {"last but one is an output", 4,
       [](Block* b) { b->graph.values[b->graph.nodes[3].outputs[0]].is_output = true; }},
      {"result is an output", 3,
       [](Block* b) { b->graph.values[b->graph.nodes[2].outputs[0]].is_output = true; }},
      {"half precision between", 0,
       [](Block* b) { b->graph.values[b->graph.nodes[2].outputs[0]].type = DataType::kFp16; }},
  };
  const std::vector<const FloatKernels*> all = all_float_kernels();
  const FloatKernels* kernels = all.empty() ? nullptr : all.back();
  if (kernels == nullptr || !kernels->depthwise_pays) GTEST_SKIP() << "not worth it on this CPU";
  const Case test = {"", 1, 14, 14, {16, 64, 16}, kSame3, kSwishBefore | kSwish | kResidual};
  for (const Rule& rule : rules) {
    Block block(test);
    rule.change(&block);
    const auto nodes = nodes_with(block, kernels, 2);
    EXPECT_EQ(nodes.size(), rule.nodes) << rule.name;
  }
  // Weights of both products that no cache holds: all while the cache holds the results between
  // them, else the depthwise convolution alone.
  const Block small({"", 1, 7, 7, {160, 960, 160}, kSame3});
  EXPECT_EQ(nodes_with(small, kernels, 1), (std::vector<size_t>{0, 1, 2}));
  const Block large({"", 1, 28, 28, {160, 960, 160}, kSame3});
  EXPECT_EQ(nodes_with(large, kernels, 1), std::vector<size_t>{1});
}

// Without the GEMMs around it, which XNNPACK has in another form for such cores.
TEST(Depthwise, IsAloneOnCoresThatRunInOrder) {
  if (sme_kernels(DataType::kFp32) != nullptr) GTEST_SKIP() << "alone, beside SME2's";
  for (const FloatKernels* kernels : all_float_kernels()) {
    if (!kernels->is_narrow || !kernels->depthwise_pays) continue;
    const FloatKernels in_order = without_gemms(*kernels);
    const Block block({"", 1, 14, 14, {16, 64, 16}, kSame3, kSwishBefore | kSwish | kResidual});
    EXPECT_EQ(nodes_with(block, kernels, 2), (std::vector<size_t>{0, 1, 2, 3, 4, 5}));
    EXPECT_EQ(nodes_with(block, &in_order, 2), (std::vector<size_t>{2, 3}));
  }
}

}  // namespace
}  // namespace edgewise::xnnpack
