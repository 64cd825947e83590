// Fused kernels against a convolution and a GEMM worked out in float64, with the vector kernels
// of every vector unit that this CPU has.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "backends/xnnpack/executor/fused_convolution.h"
#include "backends/xnnpack/executor/fused_gemm.h"
#include "backends/xnnpack/executor/fused_winograd.h"
#include "backends/xnnpack/executor/sme_gemm.h"
#include "backends/xnnpack/executor/value_memory.h"
#include "random_values.h"
#include "scratch_memory.h"

namespace edgewise::xnnpack {
namespace {

using Doubles = std::vector<double>;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Case {
  const char* name;
  size_t batch, height, width, in_channels, out_channels;
  uint32_t pad_top = 1, pad_left = 1, pad_bottom = 1, pad_right = 1;
  bool has_bias = true;
  bool has_residual = false;
  float min = -kInfinity, max = kInfinity;
  int threads = 1;
  uint32_t kernel = 1, stride = 1;
};

// A graph of one convolution: input, filter, bias, residual, output.
struct Convolution {
  Case test;
  uint32_t kernel, stride;
  Floats input, filter, bias, residual;
  Graph graph;
  std::vector<Shape> shapes;
  LinearNodes nodes;

  Convolution(const Case& of, uint32_t kernel_size)
      : test(of), kernel(kernel_size), stride(of.stride) {
    const size_t out_height = (test.height + test.pad_top + test.pad_bottom - kernel) / stride + 1;
    const size_t out_width = (test.width + test.pad_left + test.pad_right - kernel) / stride + 1;
    const size_t ins = test.in_channels, outs = test.out_channels;
    shapes = {shape_of({test.batch, test.height, test.width, ins}),
              shape_of({outs, kernel, kernel, ins}), shape_of({outs}),
              shape_of({test.batch, out_height, out_width, outs}),
              shape_of({test.batch, out_height, out_width, outs})};
    input = random_floats(shapes[0].elements(), 1);
    filter = random_floats(shapes[1].elements(), 2);
    bias = random_floats(outs, 3);
    residual = random_floats(shapes[3].elements(), 4);
    for (const Shape& shape : shapes) {
      GraphValue value;
      value.type = DataType::kFp32;
      value.shape = shape;
      graph.values.push_back(value);
    }
    graph.values[1].data.bytes = std::as_bytes(std::span(filter));
    graph.values[2].data.bytes = std::as_bytes(std::span(bias));
    GraphNode node;
    node.kind = NodeKind::kConv2d;
    node.window = {.pad_top = test.pad_top,
                   .pad_right = test.pad_right,
                   .pad_bottom = test.pad_bottom,
                   .pad_left = test.pad_left,
                   .kernel = {kernel, kernel},
                   .stride = {stride, stride},
                   .group_inputs = static_cast<uint32_t>(ins),
                   .group_outputs = static_cast<uint32_t>(outs)};
    graph.nodes.push_back(node);
    nodes = {.nodes = {0},
             .input = 0,
             .filter = 1,
             .bias = test.has_bias ? 2 : kNone,
             .residual = test.has_residual ? 3 : kNone,
             .output = 4,
             .min = test.min,
             .max = test.max};
  }

  // `scale` gets the largest sum of the absolute products of one output.
  Doubles expected(double* scale) const {
    const Shape& out = shapes[4];
    Doubles result(out.elements());
    *scale = 0;
    for (size_t i = 0; i < result.size(); ++i) {
      const size_t channel = i % out[3], x = i / out[3] % out[2], y = i / out[3] / out[2] % out[1];
      const size_t image = i / out[3] / out[2] / out[1];
      double sum = test.has_bias ? bias[channel] : 0, size = 0;
      for (size_t tap = 0; tap < kernel * kernel; ++tap) {
        const size_t from_y = y * stride + tap / kernel - test.pad_top;
        const size_t from_x = x * stride + tap % kernel - test.pad_left;
        if (from_y >= test.height || from_x >= test.width) continue;
        const size_t pixel = (image * test.height + from_y) * test.width + from_x;
        for (size_t k = 0; k < test.in_channels; ++k) {
          const double product =
              double{input[pixel * test.in_channels + k]} *
              double{filter[(channel * kernel * kernel + tap) * test.in_channels + k]};
          sum += product;
          size += std::abs(product);
        }
      }
      if (test.has_residual) sum += residual[i];
      result[i] = std::min(std::max(sum, double{test.min}), double{test.max});
      *scale = std::max(*scale, size);
    }
    return result;
  }

  using Make =
      std::function<Result<std::unique_ptr<Step>>(const Graph&, const LinearNodes&, ProgramState&)>;
  void check(const Make& make, double tolerance) const {
    auto state = ProgramState::make(test.threads);
    ASSERT_TRUE(state.ok()) << state.status().message();
    auto step = make(graph, nodes, **state);
    ASSERT_TRUE(step.ok()) << step.status().message();
    ASSERT_TRUE((*step)->reshape(shapes).ok());
    ScratchMemory scratch(**step, static_cast<size_t>(test.threads));
    // Nothing but the output is written.
    constexpr size_t kAround = 64;
    constexpr float kUntouched = 1234;
    Floats output(shapes[4].elements() + 2 * kAround, kUntouched);
    Floats in = input, added = residual;
    void* addresses[] = {in.data(), nullptr, nullptr, added.data(), output.data() + kAround};
    ASSERT_TRUE((*step)->set_pointers(addresses, scratch).ok());
    ASSERT_TRUE((*step)->run().ok());
    EXPECT_TRUE(scratch.is_kept());
    double scale;
    const Doubles right = expected(&scale);
    double worst = 0;
    for (size_t i = 0; i < right.size(); ++i) {
      const double difference = std::abs(double{output[kAround + i]} - right[i]);
      worst = difference <= worst ? worst : difference;  // NaN stays
    }
    EXPECT_LE(worst, tolerance * scale);
    for (size_t i = 0; i < kAround; ++i) {
      ASSERT_EQ(output[i], kUntouched);
      ASSERT_EQ(output[output.size() - 1 - i], kUntouched);
    }
    EXPECT_EQ(in, input);
  }
};

using Make = Result<std::unique_ptr<Step>> (*)(const Graph&, const LinearNodes&,
                                               const FloatKernels&, ProgramState&);
void check_all(const Convolution& convolution, Make make, double tolerance) {
  for (const FloatKernels* kernels : all_float_kernels()) {
    SCOPED_TRACE(kernels->name);
    convolution.check([&](const Graph& graph, const LinearNodes& nodes,
                          ProgramState& state) { return make(graph, nodes, *kernels, state); },
                      tolerance);
  }
}

const Case kCases[] = {
    {"OnePixel", 1, 1, 1, 16, 16},
    {"OneRow", 1, 1, 9, 16, 32},
    {"Odd", 1, 5, 7, 16, 16},
    {"Even", 1, 6, 8, 32, 64},
    {"OddChannels", 1, 5, 6, 3, 5},
    {"ChannelsOverAVector", 1, 4, 5, 17, 33},
    {"ManyChannels", 1, 4, 4, 130, 98},
    {"ThreeVectorsOfFour", 1, 5, 7, 19, 44},
    {"NoPadding", 1, 6, 5, 16, 16, 0, 0, 0, 0},
    {"PaddedLeftAndTop", 1, 6, 5, 16, 16, 2, 1, 0, 0},
    {"PaddedRightAndBottom", 1, 5, 6, 16, 16, 0, 0, 1, 2},
    {"WidelyPadded", 1, 3, 3, 16, 16, 3, 4, 5, 6},
    {"Batch", 3, 5, 5, 16, 48},
    {"Bounds", 1, 5, 6, 16, 16, 1, 1, 1, 1, true, false, -1, 2},
    {"NoBias", 1, 5, 5, 16, 32, 1, 1, 1, 1, false},
    {"Residual", 2, 5, 7, 16, 40, 1, 1, 1, 1, true, true},
    {"ResidualAndBounds", 1, 7, 7, 32, 33, 1, 1, 1, 1, true, true, 0, kInfinity},
    {"FewTilesForTwoThreads", 1, 7, 7, 64, 96, 1, 1, 1, 1, true, true, 0, 6, 2},
    {"ManyTilesForThreeThreads", 2, 30, 31, 32, 32, 1, 1, 1, 1, true, true, 0, 6, 3},
    {"LargeTiles", 1, 24, 24, 40, 48},
    {"LargeTilesInPart", 1, 23, 25, 17, 33, 1, 1, 1, 1, true, true, -1, 2},
    {"LargeTilesWithoutPadding", 2, 19, 22, 16, 16, 0, 0, 0, 0, false},
    {"LargeTilesWidelyPadded", 1, 17, 16, 19, 44, 4, 5, 3, 6, true, false, 0, kInfinity, 2},
};

std::string name_of_case(const testing::TestParamInfo<Case>& info) { return info.param.name; }

class FusedKernels : public testing::TestWithParam<Case> {};
// In units of the sums of absolute products. A sum of n products is within n * 2^-24 at worst,
// and about sqrt(n) * 2^-24 as a rule; the transforms add a few roundings of larger numbers.
TEST_P(FusedKernels, WinogradMatchesFloat64) {
  check_all(Convolution(GetParam(), 3), FusedWinograd::make, 1e-6);
}
TEST_P(FusedKernels, ProductMatchesFloat64) {
  Case test = GetParam();
  test.pad_top = test.pad_left = test.pad_bottom = test.pad_right = 0;
  check_all(Convolution(test, 1), FusedGemm::make, 5e-7);
}
INSTANTIATE_TEST_SUITE_P(All, FusedKernels, testing::ValuesIn(kCases), name_of_case);

// Convolutions as GEMMs of rows that lie in segments.
const Case kWindows[] = {
    {"Stem", 1, 15, 17, 3, 16, 0, 0, 1, 1, true, false, 0, 6, 1, 3, 2},
    {"WideStem", 2, 20, 23, 3, 64, 3, 3, 3, 3, true, false, 0, kInfinity, 2, 7, 2},
    {"OneChannel", 1, 9, 11, 1, 12, 3, 2, 1, 4, true, false, -1, 1, 1, 7, 1},
    {"Stride2", 1, 14, 14, 24, 40, 1, 1, 1, 1, false, false, -kInfinity, kInfinity, 3, 3, 2},
    {"Stride3", 1, 16, 19, 5, 19, 0, 0, 0, 0, true, false, -kInfinity, kInfinity, 1, 5, 3},
    {"Pointwise", 3, 13, 13, 18, 33, 0, 0, 0, 0, true, false, -kInfinity, kInfinity, 1, 1, 2},
    {"Residual", 2, 9, 33, 6, 21, 1, 1, 1, 1, true, true, 0, kInfinity, 2, 3, 1},
    {"WeightsOfNoCache", 2, 9, 11, 130, 128, 1, 1, 1, 1, true, true, 0, kInfinity, 2, 3, 2},
    {"FewColumns", 1, 9, 6, 8, 3, 1, 1, 1, 1, true, true, -2, 3, 1, 3, 1},
};
class FusedWindows : public testing::TestWithParam<Case> {};
TEST_P(FusedWindows, ConvolutionMatchesFloat64) {
  check_all(Convolution(GetParam(), GetParam().kernel), FusedConvolution::make, 5e-7);
}
INSTANTIATE_TEST_SUITE_P(All, FusedWindows, testing::ValuesIn(kWindows), name_of_case);

#ifdef EDGEWISE_HAS_KLEIDIAI
// On CPUs that have it. A fully connected node is one of 1x1, whose filter may lie the other way
// round.
class SmeKernelsTest : public testing::TestWithParam<Case> {
 protected:
  static void check(const Convolution& convolution) {
    if (sme_kernels(DataType::kFp32) == nullptr) GTEST_SKIP() << "no SME2";
    convolution.check(SmeGemm::make, 5e-7);
  }
};
TEST_P(SmeKernelsTest, ConvolutionMatchesFloat64) {
  check(Convolution(GetParam(), GetParam().kernel == 1 ? 3 : GetParam().kernel));
}
TEST_P(SmeKernelsTest, ProductMatchesFloat64) {
  Case test = GetParam();
  test.pad_top = test.pad_left = test.pad_bottom = test.pad_right = 0;
  test.stride = 1;
  for (const bool is_transposed : {false, true}) {
    Convolution product(test, 1);
    GraphNode& node = product.graph.nodes[0];
    node.kind = NodeKind::kFullyConnected;
    const size_t ins = test.in_channels, outs = test.out_channels;
    const Floats filter = product.filter;
    product.graph.values[1].shape = shape_of({outs, ins});
    if (is_transposed) {
      node.flags = XNN_FLAG_TRANSPOSE_WEIGHTS;
      product.graph.values[1].shape = shape_of({ins, outs});
      for (size_t i = 0; i < outs; ++i) {
        for (size_t j = 0; j < ins; ++j) product.filter[j * outs + i] = filter[i * ins + j];
      }
    }
    const Floats stored = product.filter;
    product.graph.values[1].data.bytes = std::as_bytes(std::span(stored));
    product.filter = filter;
    check(product);
  }
}
INSTANTIATE_TEST_SUITE_P(All, SmeKernelsTest, testing::ValuesIn(kCases), name_of_case);
INSTANTIATE_TEST_SUITE_P(Windows, SmeKernelsTest, testing::ValuesIn(kWindows), name_of_case);

TEST(SmeKernels, KeepWhatIsNoNumber) {
  if (sme_kernels(DataType::kFp32) == nullptr) GTEST_SKIP() << "no SME2";
  Convolution c({"", 1, 4, 4, 16, 16, 0, 0, 0, 0}, 1);
  c.input[16] = std::numeric_limits<float>::quiet_NaN();
  c.input[32] = kInfinity;
  auto state = ProgramState::make(1);
  ASSERT_TRUE(state.ok());
  auto step = SmeGemm::make(c.graph, c.nodes, **state);
  ASSERT_TRUE(step.ok());
  ASSERT_TRUE((*step)->reshape(c.shapes).ok());
  ScratchMemory scratch(**step, 1);
  Floats output(c.shapes[4].elements());
  void* addresses[] = {c.input.data(), nullptr, nullptr, nullptr, output.data()};
  ASSERT_TRUE((*step)->set_pointers(addresses, scratch).ok());
  ASSERT_TRUE((*step)->run().ok());
  for (size_t i = 0; i < 16; ++i) {
    EXPECT_TRUE(std::isnan(output[16 + i]));
    EXPECT_EQ(output[32 + i], c.filter[16 * i] > 0 ? kInfinity : -kInfinity);
    EXPECT_TRUE(std::isfinite(output[48 + i]));
  }
}
#endif

// The sizes of the layers that it is for; what the rule chooses depends on the CPU.
TEST(Winograd, IsAccurateForDeepLayers) {
  check_all(Convolution({"", 1, 14, 14, 256, 64}, 3), FusedWinograd::make, 5e-7);
  check_all(Convolution({"", 1, 28, 28, 256, 64}, 3), FusedWinograd::make, 5e-7);
}

TEST(Winograd, SuitsWhatItIsFor) {
  struct Rule {
    const char* name;
    bool suits;
    void (*change)(Convolution*);
  };
  const Rule rules[] = {
      {"as it is", true, [](Convolution*) {}},
      {"stride", false, [](Convolution* c) { c->graph.nodes[0].window.stride[1] = 2; }},
      {"dilation", false, [](Convolution* c) { c->graph.nodes[0].window.dilation[0] = 2; }},
      {"groups", false, [](Convolution* c) { c->graph.nodes[0].window.groups = 2; }},
      {"kernel", false, [](Convolution* c) { c->graph.nodes[0].window.kernel[0] = 5; }},
      {"flags", false, [](Convolution* c) { c->graph.nodes[0].flags = 1; }},
      {"few channels", false, [](Convolution* c) { c->graph.nodes[0].window.group_inputs = 16; }},
      {"one tile", false, [](Convolution* c) { c->shapes[4][1] = c->shapes[4][2] = 2; }},
      {"depthwise", false,
       [](Convolution* c) { c->graph.nodes[0].kind = NodeKind::kDepthwiseConv2d; }},
  };
  for (const Rule& rule : rules) {
    Convolution c({"", 1, 28, 28, 128, 128}, 3);
    rule.change(&c);
    EXPECT_EQ(winograd_rule(c.graph, c.shapes, c.nodes) == nullptr, rule.suits) << rule.name;
  }
}

TEST(ValueMemory, DoesNotOverlap) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<Lifetime> values(1 + random() % 12);
    size_t sum = 0;
    for (Lifetime& value : values) {
      value.bytes = 1 + random() % 1000;
      value.first = random() % 10;
      value.last = value.first + random() % 4;
      sum += value.bytes + 192;
    }
    const size_t total = assign_offsets(&values);
    EXPECT_LE(total, sum);
    for (const Lifetime& a : values) {
      EXPECT_EQ(a.offset % kBufferAlignment, 0u);
      EXPECT_LE(a.offset + a.bytes + kReadPadding, total);
      for (const Lifetime& b : values) {
        if (&a == &b || a.last < b.first || b.last < a.first) continue;
        EXPECT_TRUE(a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset);
      }
    }
  }
}

}  // namespace
}  // namespace edgewise::xnnpack
