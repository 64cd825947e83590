// 16-bit floats: float16 with XNNPACK's kernels for this CPU, or computed in float32, as
// bfloat16 always is.
#include <gtest/gtest.h>

#include <cmath>

// Before what declares less of the same.
#include "payload_builder.h"

#include "backends/xnnpack/executor/executor.h"
#include "backends/xnnpack/executor/sme_kernels.h"
#include "backends/xnnpack/fold.h"
#include "backends/xnnpack/node_types.h"
#include "backends/xnnpack/program_state.h"
#include "backends/xnnpack/read_graph.h"
#include "backends/xnnpack/shapes.h"
#include "backends/xnnpack/upcast_half.h"

namespace edgewise::xnnpack {
namespace {

using Node = fb::XNodeUnion;
using Type = fb::XNNDatatype;
using Floats = std::vector<float>;
using Halves = std::vector<uint16_t>;

// Normal numbers of float16 only.
uint16_t to_half(float number) {
  if (number == 0) return 0;
  int exponent = 0;
  const float fraction = std::frexp(std::fabs(number), &exponent);
  const auto bits = static_cast<uint16_t>(std::lrint(std::ldexp(fraction, 11)) - 1024);
  const int sign = number < 0 ? 0x8000 : 0;
  return static_cast<uint16_t>(sign + ((exponent + 14) << 10) + bits);
}

float to_float(uint16_t half) {
  const int exponent = (half >> 10) & 0x1f;
  const int fraction = half & 0x3ff;
  const float magnitude = exponent == 0
                              ? std::ldexp(static_cast<float>(fraction), -24)
                              : std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

uint16_t to_bits(Type type, float number) {
  return type == Type::bf16 ? to_bfloat16(number) : to_half(number);
}

float from_bits(Type type, uint16_t bits) {
  return type == Type::bf16 ? from_bfloat16(bits) : to_float(bits);
}

// Eighths from low to low + 2.
Floats ramp(size_t count, float low) {
  Floats result;
  for (size_t i = 0; i < count; ++i) result.push_back(low + static_cast<float>(i * 5 % 17) / 8);
  return result;
}

// A payload in one of the types.
struct Maker {
  Type type;
  PayloadBuilder b;

  uint32_t in(Dims dims) { return b.input(std::move(dims), type); }
  uint32_t out(Dims dims) { return b.output(std::move(dims), type); }
  uint32_t constant(Dims dims, float low = -1) {
    size_t count = 1;
    for (uint32_t size : dims) count *= size;
    const Floats numbers = ramp(count, low);
    if (type == Type::fp32) return b.constant<float>(std::move(dims), numbers);
    Halves halves;
    for (float number : numbers) halves.push_back(to_bits(type, number));
    return b.constant<uint16_t>(std::move(dims), halves, type);
  }
};

struct Case {
  const char* name;
  void (*make)(Maker& maker);
  float low = -1;  // of the inputs
  // Of the largest number, by XNNPACK: its approximations in float16 go up to a few units of the
  // last place.
  float tolerance = 0x1p-8f;
};

template <Node type>
void unary(Maker& m) {
  const uint32_t x = m.in({2, 9}), out = m.out({2, 9});
  m.b.unary(type, x, out);
}
template <Node type>
void binary(Maker& m) {
  const uint32_t x = m.in({2, 9}), c = m.constant({9}, 0.5f), out = m.out({2, 9});
  m.b.binary(type, x, c, out);
}
template <Node type, uint32_t kSize = 0, uint32_t kOuts = 3>
void convolution(Maker& m) {
  const bool is_depthwise = type == Node::XNNDepthwiseConv2d;
  const bool is_transposed = type == Node::XNNConvTranspose2d;
  const uint32_t x = m.in({1, 4 + kSize, 5 + kSize, 3});
  const uint32_t w = is_depthwise ? m.constant({1, 3, 3, 3}) : m.constant({kOuts, 3, 3, 3});
  const uint32_t bias = m.constant({kOuts});
  const uint32_t rows = kSize + (is_transposed ? 6 : 2), columns = kSize + (is_transposed ? 7 : 3);
  const uint32_t out = m.out({1, rows, columns, kOuts});
  fb::_XNNNodeConvT table;
  table.input1_id = x;
  table.filter_id = w;
  table.bias_id = bias;
  table.output_id = out;
  table.kernel_height = table.kernel_width = 3;
  table.subsampling_height = table.subsampling_width = 1;
  table.dilation_height = table.dilation_width = 1;
  table.groups = is_depthwise ? 3 : 1;
  table.group_input_channels = is_depthwise ? 1 : 3;
  table.group_output_channels = is_depthwise ? 1 : kOuts;
  m.b.node(type, table);
}
template <Node type>
void pooling(Maker& m) {
  const uint32_t x = m.in({1, 4, 6, 5}), out = m.out({1, 2, 3, 5});
  fb::_XNNPooling2DT table;
  table.pooling_height = table.pooling_width = 2;
  table.stride_height = table.stride_width = 2;
  table.dilation_height = table.dilation_width = 1;
  table.input_id = x;
  table.output_id = out;
  m.b.node(type, table);
}
template <uint32_t kRows, uint32_t kDepth, uint32_t kColumns>
void fully_connected(Maker& m) {
  const uint32_t x = m.in({kRows, kDepth}), w = m.constant({kColumns, kDepth});
  const uint32_t bias = m.constant({kColumns}), out = m.out({kRows, kColumns});
  m.b.linear(x, w, bias, out);
}
void batch_product(Maker& m) {
  const uint32_t x = m.in({2, 3, 4}), w = m.constant({2, 4, 5}), out = m.out({2, 3, 5});
  m.b.binary(Node::XNNBatchMatrixMultiply, x, w, out);
}
void resize(Maker& m) {
  const uint32_t x = m.in({1, 3, 4, 5}), out = m.out({1, 6, 8, 5});
  fb::XNNStaticResizeBilinear2DT table;
  table.new_height = 6;
  table.new_width = 8;
  table.input_id = x;
  table.output_id = out;
  m.b.node(Node::XNNStaticResizeBilinear2D, table);
}
void pad(Maker& m) {
  const uint32_t x = m.in({2, 3}), out = m.out({4, 3});
  fb::XNNStaticConstantPadT table;
  table.pre_paddings = {1, 0};
  table.post_paddings = {1, 0};
  table.padding_value = 0.75f;
  table.input_id = x;
  table.output_id = out;
  m.b.node(Node::XNNStaticConstantPad, table);
}
void transpose(Maker& m) {
  const uint32_t x = m.in({2, 9}), out = m.out({9, 2});
  fb::XNNStaticTransposeT table;
  table.num_dims = 2;
  table.perm = {1, 0};
  table.input_id = x;
  table.output_id = out;
  m.b.node(Node::XNNStaticTranspose, table);
}
void concatenate(Maker& m) {
  const uint32_t x = m.in({2, 9}), c = m.constant({2, 3}), out = m.out({2, 12});
  fb::_XNNCatT table;
  table.axis = 1;
  table.input1_id = x;
  table.input2_id = c;
  table.output_id = out;
  m.b.node(Node::XNNConcatenate2, table);
}
void slice(Maker& m) {
  const uint32_t x = m.in({4, 9}), out = m.out({2, 5});
  fb::XNNStaticSliceT table;
  table.num_dims = 2;
  table.offsets = {1, 3};
  table.sizes = {2, 5};
  table.input_id = x;
  table.output_id = out;
  m.b.node(Node::XNNStaticSlice, table);
}
void leaky_relu(Maker& m) {
  const uint32_t x = m.in({2, 9}), out = m.out({2, 9});
  fb::XNNLeakyReLUT table;
  table.negative_slope = 0.25f;
  table.input_id = x;
  table.output_id = out;
  m.b.node(Node::XNNLeakyReLU, table);
}
void elu(Maker& m) {
  const uint32_t x = m.in({2, 9}), out = m.out({2, 9});
  fb::XNNELUT table;
  table.alpha = 0.5f;
  table.input_id = x;
  table.output_id = out;
  m.b.node(Node::XNNELU, table);
}
void global_pool(Maker& m) {
  const uint32_t x = m.in({1, 4, 6, 5}), out = m.out({1, 1, 1, 5});
  m.b.unary(Node::XNNGlobalAvgPooling2d, x, out, XNN_FLAG_KEEP_DIMS);
}
void bounded(Maker& m) {
  binary<Node::XNNAdd>(m);
  m.b.bound(0, 1);
}
void chain(Maker& m) {
  const uint32_t x = m.in({2, 9}), e = m.b.internal({2, 9}, m.type);
  const uint32_t l = m.b.internal({2, 9}, m.type), out = m.out({2, 9}), more = m.out({2, 9});
  m.b.unary(Node::XNNExp, x, e);
  m.b.unary(Node::XNNLog, e, l);
  m.b.unary(Node::XNNAbs, l, out);
  m.b.binary(Node::XNNMultiply, e, out, more);
}

constexpr Case kCases[] = {
    {"Sigmoid", unary<Node::XNNSigmoid>},
    {"Floor", unary<Node::XNNFloor>},
    {"Ceiling", unary<Node::XNNCeiling>},
    {"SquareRoot", unary<Node::XNNSquareRoot>, 0.25f},
    {"ReciprocalSquareRoot", unary<Node::XNNReciprocalSquareRoot>, 0.25f},
    {"Hardswish", unary<Node::XNNHardswish>},
    {"Negate", unary<Node::XNNNegate>},
    {"Square", unary<Node::XNNSquare>},
    {"Abs", unary<Node::XNNAbs>},
    {"Log", unary<Node::XNNLog>, 0.25f},
    {"Gelu", unary<Node::XNNGelu>},
    {"Tanh", unary<Node::XNNTanh>},
    {"Exp", unary<Node::XNNExp>},
    {"Sin", unary<Node::XNNSin>},
    {"Cos", unary<Node::XNNCos>},
    {"Copy", unary<Node::XNNCopy>},
    {"Softmax", unary<Node::XNNSoftmax>},
    {"LeakyRelu", leaky_relu},
    {"Elu", elu},
    {"Add", binary<Node::XNNAdd>},
    {"Subtract", binary<Node::XNNSubtract>},
    {"Multiply", binary<Node::XNNMultiply>},
    {"Divide", binary<Node::XNNDiv>},
    {"Minimum", binary<Node::XNNMinimum>},
    {"Maximum", binary<Node::XNNMaximum>},
    {"Prelu", binary<Node::XNNPReLU>},
    {"BoundedAdd", bounded},
    {"FullyConnected", fully_connected<3, 12, 5>},
    {"FullyConnectedOfARow", fully_connected<1, 101, 70>},
    // XNNPACK adds up in float16.
    {"FullyConnectedOfManyRows", fully_connected<13, 1101, 33>, -1, 0x1p-6f},
    {"BatchProduct", batch_product},
    {"Conv2d", convolution<Node::XNNConv2d>},
    {"Conv2dOfManyPixels", convolution<Node::XNNConv2d, 8, 35>},
    {"DepthwiseConv2d", convolution<Node::XNNDepthwiseConv2d>},
    {"ConvTranspose2d", convolution<Node::XNNConvTranspose2d>},
    {"MaxPool", pooling<Node::XNNMaxPooling2d>},
    {"AvgPool", pooling<Node::XNNAvgPooling2d>},
    {"GlobalPool", global_pool},
    {"Resize", resize},
    {"Pad", pad},
    {"Transpose", transpose},
    {"Concatenate", concatenate},
    {"Slice", slice},
    {"Chain", chain},
};

bool never(const Graph& graph, const GraphNode& node) {
  return node.kind == NodeKind::kConvert && graph.values[node.outputs[0]].type != DataType::kQdint8;
}

Result<Graph> make_graph(const std::vector<std::byte>& bytes, TakesHalf takes_half) {
  auto payload = open_payload(bytes);
  if (!payload.ok()) return payload.status();
  auto graph = read_graph(*payload, nullptr);
  if (!graph.ok()) return graph.status();
  if (auto status = check_types(*graph); !status.ok()) return status;
  fold_nodes(&*graph);
  upcast_half(&*graph, takes_half);
  return graph;
}

// The first output.
Floats run_case(const Case& test, Type type, TakesHalf takes_half,
                const FloatKernels* kernels = nullptr) {
  Maker maker{type, {}};
  test.make(maker);
  const std::vector<std::byte> bytes = maker.b.bytes();
  auto graph = make_graph(bytes, takes_half);
  EXPECT_TRUE(graph.ok()) << graph.status().message();
  if (!graph.ok()) return {};
  std::vector<Shape> shapes = graph->serialized_shapes();
  EXPECT_TRUE(infer_shapes(*graph, &shapes).ok());
  auto state = ProgramState::make(1);
  auto executor = Executor::make(*graph, shapes, kernels, **state);
  EXPECT_TRUE(executor.ok()) << executor.status().message();
  if (!executor.ok()) return {};
  const bool is_half = type != Type::fp32;
  std::vector<std::vector<uint32_t>> memory;
  std::vector<void*> addresses(graph->values.size());
  for (const auto* list : {&graph->inputs, &graph->outputs}) {
    for (uint32_t value : *list) {
      const size_t count = shapes[value].elements();
      memory.emplace_back(count + XNN_EXTRA_BYTES);
      if (list == &graph->inputs) {
        const Floats numbers = ramp(count, test.low);
        auto* half = reinterpret_cast<uint16_t*>(memory.back().data());
        auto* full = reinterpret_cast<float*>(memory.back().data());
        for (size_t i = 0; i < count; ++i) {
          if (is_half) half[i] = to_bits(type, numbers[i]);
          if (!is_half) full[i] = numbers[i];
        }
      }
      addresses[value] = memory.back().data();
    }
  }
  EXPECT_TRUE((*executor)->reshape(shapes).ok());
  EXPECT_TRUE((*executor)->set_pointers(addresses).ok());
  EXPECT_TRUE((*executor)->run().ok());
  Floats result(shapes[graph->outputs[0]].elements());
  const void* output = memory[graph->inputs.size()].data();
  for (size_t i = 0; i < result.size(); ++i) {
    result[i] = is_half ? from_bits(type, static_cast<const uint16_t*>(output)[i])
                        : static_cast<const float*>(output)[i];
  }
  return result;
}

void expect_close(const Floats& got, const Floats& expected, float relative) {
  ASSERT_EQ(got.size(), expected.size());
  float largest = 0;
  for (float number : expected) largest = std::max(largest, std::fabs(number));
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], expected[i], relative * largest) << i;
  }
}

class XnnpackHalf : public testing::TestWithParam<Case> {};

// Constants and inputs are the same numbers in both types, so that what differs is rounding:
// float16 has 11 binary digits.
TEST_P(XnnpackHalf, ComputesInFloat32WhatItMust) {
  expect_close(run_case(GetParam(), Type::fp16, never), run_case(GetParam(), Type::fp32, never),
               0x1p-11f);
}

// bfloat16 has 8 digits.
TEST_P(XnnpackHalf, ComputesBfloat16InFloat32) {
  const Floats expected = run_case(GetParam(), Type::fp32, never);
  for (TakesHalf takes_half : {never, has_half_kernel}) {
    expect_close(run_case(GetParam(), Type::bf16, takes_half), expected, 0x1p-8f);
  }
  expect_close(run_case(GetParam(), Type::bf16, never, float_kernels()), expected, 0x1p-8f);
}

TEST_P(XnnpackHalf, ComputesWithTheKernelsThereAre) {
  expect_close(run_case(GetParam(), Type::fp16, has_half_kernel),
               run_case(GetParam(), Type::fp32, never), GetParam().tolerance);
}

// Those for SME2 add up in float32.
TEST_P(XnnpackHalf, ComputesWithKernelsForSme) {
  if (sme_kernels(DataType::kFp16) == nullptr) GTEST_SKIP() << "no SME2";
  expect_close(run_case(GetParam(), Type::fp16, has_half_kernel, float_kernels()),
               run_case(GetParam(), Type::fp32, never), 0x1p-8f);
}

INSTANTIATE_TEST_SUITE_P(All, XnnpackHalf, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

std::vector<NodeKind> kinds_of(void (*make)(Maker&), TakesHalf takes_half, Type type = Type::fp16) {
  Maker maker{type, {}};
  make(maker);
  const auto bytes = maker.b.bytes();
  auto graph = make_graph(bytes, takes_half);
  EXPECT_TRUE(graph.ok()) << graph.status().message();
  std::vector<NodeKind> kinds;
  for (const GraphNode& node : graph->nodes) kinds.push_back(node.kind);
  return kinds;
}

TEST(XnnpackHalfGraph, ConvertsNothingBetweenNodesInFloat32) {
  using K = NodeKind;
  const auto kinds = kinds_of(chain, never);
  const std::vector<K> expected = {K::kConvert, K::kExp,      K::kLog,    K::kAbs,
                                   K::kConvert, K::kMultiply, K::kConvert};
  EXPECT_EQ(kinds, expected);
}

TEST(XnnpackHalfGraph, ConvertsAroundSingleNodes) {
  using K = NodeKind;
  const TakesHalf all_but_log = [](const Graph&, const GraphNode& node) {
    return node.kind != K::kLog;
  };
  const std::vector<K> expected = {K::kExp,     K::kConvert, K::kLog,
                                   K::kConvert, K::kAbs,     K::kMultiply};
  EXPECT_EQ(kinds_of(chain, all_but_log), expected);
}

TEST(XnnpackHalfGraph, LeavesOutConversionsThatAreInTheProgram) {
  using K = NodeKind;
  const auto make = [](Maker& m) {
    const uint32_t x = m.in({2, 9}), a = m.b.internal({2, 9}, m.type);
    const uint32_t wide = m.b.internal({2, 9}), square = m.b.internal({2, 9});
    const uint32_t narrow = m.b.internal({2, 9}, m.type), out = m.out({2, 9});
    m.b.unary(Node::XNNAbs, x, a);
    m.b.unary(Node::XNNConvert, a, wide);
    m.b.unary(Node::XNNSquare, wide, square);
    m.b.unary(Node::XNNConvert, square, narrow);
    m.b.unary(Node::XNNNegate, narrow, out);
  };
  const std::vector<K> expected = {K::kConvert, K::kAbs, K::kSquare, K::kNegate, K::kConvert};
  EXPECT_EQ(kinds_of(make, never), expected);
  EXPECT_EQ(kinds_of(make, has_half_kernel, Type::bf16), expected);
}

HostTensor filled(Type type, const Floats& numbers) {
  if (type == Type::fp32) return std::move(HostTensor(ScalarType::kFloat, {2, 9}).fill(numbers));
  Halves halves;
  for (float number : numbers) halves.push_back(to_bits(type, number));
  const ScalarType scalar = type == Type::bf16 ? ScalarType::kBFloat16 : ScalarType::kHalf;
  HostTensor result(scalar, {2, 9});
  std::memcpy(result.tensor().data<std::byte>(), halves.data(), halves.size() * sizeof(uint16_t));
  return result;
}

// Of numbers that all of them hold; with and without kernels of ours.
TEST(XnnpackHalfGraph, ConvertsBetweenAllFloats) {
  constexpr Type kTypes[] = {Type::fp32, Type::fp16, Type::bf16};
  const Floats numbers = ramp(18, -1);
  for (const Type from : kTypes) {
    for (const Type to : kTypes) {
      PayloadBuilder b;
      const uint32_t x = b.input({2, 9}, from), out = b.output({2, 9}, to);
      b.unary(Node::XNNConvert, x, out);
      const auto bytes = b.bytes();
      for (const bool own_kernels : {true, false}) {
        auto delegate = make_delegate(bytes, nullptr, nullptr, 1, own_kernels);
        ASSERT_TRUE(delegate.ok()) << delegate.status().message();
        HostTensor input = filled(from, numbers), expected = filled(to, numbers);
        HostTensor output = filled(to, Floats(18));
        ASSERT_TRUE(run(**delegate, {&input, &output}).ok());
        EXPECT_EQ(
            std::memcmp(output.memory.data(), expected.memory.data(), expected.tensor().nbytes()),
            0);
      }
    }
  }
}

TEST(XnnpackHalfGraph, RoundsToBfloat16AsPyTorch) {
  struct Rounded {
    uint32_t wide;
    uint16_t narrow;
  };
  const Rounded cases[] = {
      {0x3f808000, 0x3f80},                                              // ties to even
      {0x3f818000, 0x3f82}, {0x3f808001, 0x3f81}, {0x7f7fffff, 0x7f80},  // past the largest
      {0xff800000, 0xff80}, {0x00000001, 0x0000},                        // subnormal
      {0x00018000, 0x0002},
  };
  for (const auto& [wide, narrow] : cases) {
    EXPECT_EQ(to_bfloat16(std::bit_cast<float>(wide)), narrow) << wide;
  }
  for (const uint32_t nan : {0x7f800001u, 0x7fffffffu, 0xffc00000u}) {
    EXPECT_TRUE(std::isnan(from_bfloat16(to_bfloat16(std::bit_cast<float>(nan))))) << nan;
  }
}

TEST(XnnpackHalfGraph, PacksConvertedFiltersOnce) {
  Maker maker{Type::fp16, {}};
  convolution<Node::XNNConv2d>(maker);
  MemoryNamedData named_data;
  maker.b.name_constant(1, "filter", &named_data);
  maker.b.name_constant(2, "bias", &named_data);
  const auto payload = maker.b.bytes();
  std::shared_ptr<BackendProgramState> state;
  auto first = make_delegate(payload, &named_data, &state);
  ASSERT_TRUE(first.ok()) << first.status().message();
  auto& weights = static_cast<ProgramState&>(*state).weights();
  EXPECT_EQ(weights.count(), 1u);
  auto second = make_delegate(payload, &named_data, &state);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(weights.count(), 1u);
  EXPECT_GE(weights.reuses(), 1u);
}

}  // namespace
}  // namespace edgewise::xnnpack
