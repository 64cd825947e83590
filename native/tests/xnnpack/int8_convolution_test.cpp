// Convolutions, depthwise ones and fully connected nodes of 8-bit integers: results of our kernels
// are XNNPACK's, bit by bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>

// First: it has the definitions of the payload's own header and more.
#include "payload_builder.h"

#include "backends/xnnpack/executor/int8_convolution.h"
#include "backends/xnnpack/executor/int8_depthwise.h"
#include "backends/xnnpack/executor/int8_winograd.h"
#include "backends/xnnpack/executor/sme_gemm.h"
#include "backends/xnnpack/payload.h"
#include "backends/xnnpack/read_graph.h"
#include "backends/xnnpack/shapes.h"

namespace edgewise::xnnpack {
namespace {

using Type = fb::XNNDatatype;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Case {
  const char* name;
  uint32_t images, height, width, ins, outs;
  uint32_t kernel[2] = {1, 1};
  uint32_t stride = 1;
  uint32_t pads[4] = {0, 0, 0, 0};  // top, right, bottom, left
  bool has_bias = true;
  int32_t zero_point = 3;
  int32_t out_zero_point = -5;
  float min = -kInfinity, max = kInfinity;
  int threads = 1;
  bool is_linear = false;
  bool is_depthwise = false;
  // Of a value that is added; 0: none. `min` and `max` are the sum's then.
  float residual_scale = 0;
  bool residual_is_first = false;
  bool is_winograd = false;  // where there are kernels for it
  bool is_extreme = false;   // numbers and weights are the least that there are
};

Case with_residual(Case c, const char* name, float scale, bool is_first = false) {
  c.name = name;
  c.residual_scale = scale;
  c.residual_is_first = is_first;
  return c;
}

Case winograd(Case c, bool is_extreme = false) {
  c.kernel[0] = c.kernel[1] = 3;
  c.is_winograd = true;
  c.is_extreme = is_extreme;
  return c;
}

// Of `channels`, same padding.
Case depthwise(const char* name, uint32_t height, uint32_t width, uint32_t channels, uint32_t size,
               uint32_t stride = 1) {
  const uint32_t pad = size / 2;
  return {.name = name,
          .images = 1,
          .height = height,
          .width = width,
          .ins = channels,
          .outs = channels,
          .kernel = {size, size},
          .stride = stride,
          .pads = {pad, pad, pad, pad},
          .is_depthwise = true};
}

class Int8Convolutions : public testing::TestWithParam<Case> {};

std::vector<int8_t> random_bytes(size_t count, uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<int8_t> result(count);
  for (int8_t& x : result) x = static_cast<int8_t>(engine() % 256);
  return result;
}

uint32_t size_after(uint32_t size, uint32_t pads, uint32_t kernel, uint32_t stride) {
  return (size + pads - kernel) / stride + 1;
}

std::vector<std::byte> payload_of(const Case& c, const Dims& in, const Dims& out) {
  PayloadBuilder b;
  const bool has_residual = c.residual_scale != 0;
  const uint32_t x = b.input(in, Type::qint8);
  const uint32_t residual = has_residual ? b.input(out, Type::qint8) : kNoId;
  const uint32_t result = b.output(out, Type::qint8);
  const uint32_t y = has_residual ? b.internal(out, Type::qint8) : result;
  b.per_tensor(x, 0.02f, c.zero_point);
  b.per_tensor(y, 0.05f, c.out_zero_point);
  if (has_residual) {
    b.per_tensor(residual, c.residual_scale, -17);
    b.per_tensor(result, 0.06f, 9);
  }
  const uint32_t group = c.is_depthwise ? 1 : c.ins;
  const uint32_t channel_dim = c.is_depthwise ? 3 : 0;
  Dims shape = {c.outs, c.kernel[0], c.kernel[1], group};
  if (c.is_linear) shape = {c.outs, c.ins};
  if (c.is_depthwise) shape = {1, c.kernel[0], c.kernel[1], c.outs};
  const size_t depth = size_t{c.kernel[0]} * c.kernel[1] * group;
  const std::vector<int8_t> weights = c.is_extreme ? std::vector<int8_t>(depth * c.outs, INT8_MIN)
                                                   : random_bytes(depth * c.outs, 2);
  const uint32_t filter = b.constant<int8_t>(shape, weights, Type::qcint8);
  std::mt19937 engine(5);
  std::vector<float> scales(c.outs), bias_scales(c.outs);
  std::vector<int32_t> bias(c.outs);
  for (uint32_t i = 0; i < c.outs; ++i) {
    scales[i] =
        0.03f / std::sqrt(static_cast<float>(depth)) * (1 + static_cast<float>(engine() % 8));
    if (c.is_extreme) scales[i] = 0.05f / 0.02f * static_cast<float>(i + 1) / (128 * 128 * depth);
    bias_scales[i] = scales[i] * 0.02f;
    bias[i] = static_cast<int32_t>(engine() % 4096) - 2048;
  }
  b.per_channel(filter, scales, channel_dim);
  uint32_t bias_id = kNoId;
  if (c.has_bias) {
    bias_id = b.constant<int32_t>({c.outs}, bias, Type::qcint32);
    b.per_channel(bias_id, bias_scales, 0);
  }
  if (c.is_linear) {
    b.linear(x, filter, bias_id, y);
  } else {
    fb::_XNNNodeConvT table;
    table.padding_top = c.pads[0];
    table.padding_right = c.pads[1];
    table.padding_bottom = c.pads[2];
    table.padding_left = c.pads[3];
    table.kernel_height = c.kernel[0];
    table.kernel_width = c.kernel[1];
    table.subsampling_height = table.subsampling_width = c.stride;
    table.dilation_height = table.dilation_width = 1;
    table.groups = c.ins / group;
    table.group_input_channels = group;
    table.group_output_channels = c.outs / table.groups;
    table.input1_id = x;
    table.filter_id = filter;
    table.bias_id = bias_id;
    table.output_id = y;
    if (c.is_depthwise) {
      b.node(fb::XNodeUnion::XNNDepthwiseConv2d, table);
    } else {
      b.node(fb::XNodeUnion::XNNConv2d, table);
    }
  }
  if (has_residual) {
    const bool is_first = c.residual_is_first;
    b.binary(fb::XNodeUnion::XNNAdd, is_first ? residual : y, is_first ? y : residual, result);
  }
  if (c.min > -kInfinity || c.max < kInfinity) b.bound(c.min, c.max);
  return b.bytes();
}

bool is_chosen(const std::vector<std::byte>& bytes, bool with_sum) {
  auto payload = open_payload(bytes);
  if (!payload.ok()) return false;
  auto graph = read_graph(*payload, nullptr);
  if (!graph.ok()) return false;
  const GraphNode& node = graph->nodes[0];
  if (node.kind == NodeKind::kDepthwiseConv2d) {
    return int8_depthwise_rule(*graph, node) == nullptr;
  }
  std::vector<Shape> shapes = graph->serialized_shapes();
  if (!infer_shapes(*graph, &shapes).ok()) return false;
  const Int8Kernels& kernels = *int8_kernels();
  const auto nodes = int8_convolution_nodes(*graph, shapes, Readers(*graph),
                                            std::vector<bool>(graph->nodes.size()), 0, kernels);
  const bool is_whole = nodes.nodes().size() == (with_sum && kernels.add != nullptr ? 2 : 1);
  return is_whole && int8_convolution_rule(*graph, shapes, node, kernels) == nullptr;
}

bool is_winograd(const std::vector<std::byte>& bytes) {
  auto graph = read_graph(*open_payload(bytes), nullptr);
  const std::vector<Shape> shapes = graph->serialized_shapes();
  return int8_winograd_rule(*graph, shapes, graph->nodes[0]) == nullptr;
}

bool is_sme(const std::vector<std::byte>& bytes) {
#ifdef EDGEWISE_HAS_KLEIDIAI
  auto graph = read_graph(*open_payload(bytes), nullptr);
  const std::vector<Shape> shapes = graph->serialized_shapes();
  const auto nodes = sme_nodes(*graph, shapes, Readers(*graph), std::vector<bool>(2), 0);
  return nodes && sme_rule(*graph, shapes, *nodes) == nullptr;
#else
  (void)bytes;
  return false;
#endif
}

TEST_P(Int8Convolutions, AreXnnpacksBitByBit) {
  const Case& c = GetParam();
  const bool has_sme = !c.is_depthwise && sme_kernels(DataType::kQint8) != nullptr;
  const bool has_kernels =
      c.is_depthwise ? int8_depthwise_kernels() != nullptr : int8_kernels() != nullptr;
  if (!has_kernels && !has_sme) GTEST_SKIP() << "XNNPACK's are faster on this CPU";
  Dims in = {c.images, c.height, c.width, c.ins};
  Dims out = {c.images, size_after(c.height, c.pads[0] + c.pads[2], c.kernel[0], c.stride),
              size_after(c.width, c.pads[1] + c.pads[3], c.kernel[1], c.stride), c.outs};
  if (c.is_linear) {
    in = {c.images * c.height * c.width, c.ins};
    out = {in[0], c.outs};
  }
  if (!has_sme && !c.is_depthwise && c.kernel[1] * c.ins < int8_kernels()->least_depth &&
      c.ins > 4) {
    GTEST_SKIP() << "XNNPACK's are faster for so little depth on this CPU";
  }
  const uint32_t padded = (c.outs + kInt8Columns - 1) / kInt8Columns * kInt8Columns;
  if (!has_sme && !c.is_depthwise && int8_kernels()->needs_full_panels && padded * 8 > c.outs * 9) {
    GTEST_SKIP() << "XNNPACK's are faster for so few columns of a panel on this CPU";
  }
  const auto payload = payload_of(c, in, out);
  if (has_sme) {
    ASSERT_EQ(is_sme(payload), c.outs >= 8);
  } else {
    ASSERT_TRUE(is_chosen(payload, c.residual_scale != 0));
    ASSERT_EQ(is_winograd(payload), c.is_winograd);
  }
  std::vector<int8_t> results[2];
  for (const bool own : {false, true}) {
    auto delegate = make_delegate(payload, nullptr, nullptr, c.threads, own);
    ASSERT_TRUE(delegate.ok()) << delegate.status().message();
    HostTensor x(ScalarType::kChar, {in.begin(), in.end()});
    HostTensor y(ScalarType::kChar, {out.begin(), out.end()});
    HostTensor residual(ScalarType::kChar, {out.begin(), out.end()});
    residual.fill(random_bytes(static_cast<size_t>(y.tensor().numel()), 11));
    std::vector<HostTensor*> arguments = {&x, &y};
    if (c.residual_scale != 0) arguments.insert(arguments.begin() + 1, &residual);
    size_t count = 1;
    for (uint32_t size : in) count *= size;
    x.fill(c.is_extreme ? std::vector<int8_t>(count, INT8_MIN) : random_bytes(count, 9));
    for (int call = 0; call < 2; ++call) {
      const Status status = run(**delegate, arguments);
      ASSERT_TRUE(status.ok()) << status.message();
    }
    results[own] = y.read<int8_t>();
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_GT(std::set<int8_t>(results[0].begin(), results[0].end()).size(), size_t{16});
}

// What is added may be one image for all, or the result one for all that is added.
TEST(Int8Convolution, FollowsShapesOfSums) {
  if (int8_kernels() == nullptr) GTEST_SKIP() << "XNNPACK's are faster on this CPU";
  const Case test = with_residual({"", 4, 9, 7, 32, 32}, "", 0.04f);
  const Dims most = {4, 9, 7, 32};
  const auto payload = payload_of(test, most, most);
  auto delegate = make_delegate(payload, nullptr, nullptr, 2);
  auto plain = make_delegate(payload, nullptr, nullptr, 2, false);
  ASSERT_TRUE(delegate.ok() && plain.ok());
  for (const auto& [images, residuals] :
       {std::pair{4, 4}, {4, 1}, {1, 4}, {3, 3}, {1, 1}, {2, 1}}) {
    const auto tensor = [](int batch, uint32_t seed) {
      HostTensor x(ScalarType::kChar, {batch, 9, 7, 32});
      x.fill(random_bytes(static_cast<size_t>(x.tensor().numel()), seed));
      return x;
    };
    HostTensor x = tensor(images, 3), residual = tensor(residuals, 4);
    HostTensor got = tensor(std::max(images, residuals), 5);
    HostTensor right = tensor(std::max(images, residuals), 6);
    ASSERT_TRUE(run(**delegate, {&x, &residual, &got}).ok());
    ASSERT_TRUE(run(**plain, {&x, &residual, &right}).ok());
    EXPECT_EQ(got.read<int8_t>(), right.read<int8_t>()) << images << " and " << residuals;
  }
}

TEST(Int8Winograd, FollowsSizes) {
  const Case test = winograd({"", 2, 12, 12, 32, 48, {}, 1, {1, 1, 1, 1}});
  const auto payload = payload_of(test, {2, 12, 12, 32}, {2, 12, 12, 48});
  auto delegate = make_delegate(payload, nullptr, nullptr, 2);
  auto plain = make_delegate(payload, nullptr, nullptr, 2, false);
  ASSERT_TRUE(delegate.ok() && plain.ok());
  for (const auto& [images, height, width] :
       {std::tuple{2, 12, 12}, {1, 7, 5}, {3, 1, 1}, {1, 40, 23}, {2, 12, 12}}) {
    const auto tensor = [&](int channels) {
      return HostTensor(ScalarType::kChar, {images, height, width, channels});
    };
    HostTensor x = tensor(32), got = tensor(48), right = tensor(48);
    x.fill(random_bytes(static_cast<size_t>(x.tensor().numel()), 3));
    ASSERT_TRUE(run(**delegate, {&x, &got}).ok());
    ASSERT_TRUE(run(**plain, {&x, &right}).ok());
    EXPECT_EQ(got.read<int8_t>(), right.read<int8_t>()) << images << " " << height << " " << width;
  }
}

const Case kCases[] = {
    {"Pointwise", 1, 5, 7, 64, 16},
    {"PointwiseOfManyRows", 2, 13, 11, 64, 48},
    {"OddDepth", 1, 5, 7, 67, 16},
    {"Shallow", 1, 9, 7, 16, 32},
    {"ShallowAndOdd", 1, 9, 7, 19, 16},
    {"DepthOfFours", 1, 5, 7, 68, 32},
    {"LastPanelInPart", 1, 4, 6, 64, 31},
    {"OnePanelInPart", 1, 5, 7, 64, 5},
    {"SecondPanelInPart", 1, 5, 7, 64, 24},
    {"Strided", 1, 9, 11, 64, 16, {1, 1}, 2},
    {"Window", 1, 7, 9, 24, 16, {3, 3}, 1, {1, 1, 1, 1}},
    {"WindowOfBatches", 3, 7, 9, 23, 32, {3, 3}, 1, {1, 1, 1, 1}},
    {"WindowWithWeightsOfNoCache", 2, 9, 7, 68, 448, {3, 3}, 2, {1, 1, 1, 1}},
    {"WindowWithoutPadding", 1, 7, 9, 24, 16, {3, 3}},
    {"UnevenPadding", 1, 6, 8, 16, 16, {3, 5}, 2, {0, 3, 2, 1}},
    {"ThreeChannels", 1, 17, 19, 3, 16, {7, 7}, 2, {3, 3, 3, 3}},
    {"ThreeChannelsWithoutPadding", 1, 17, 19, 3, 16, {7, 7}, 2},
    {"NoBias", 1, 5, 7, 64, 16, {1, 1}, 1, {0, 0, 0, 0}, false},
    {"ZeroPointAtTheLimit", 1, 5, 7, 32, 16, {3, 3}, 1, {1, 1, 1, 1}, true, -128, 127},
    {"Bounds", 1, 5, 7, 64, 16, {1, 1}, 1, {0, 0, 0, 0}, true, 3, -5, 0, 2.5f},
    {"TwoThreads", 2, 15, 13, 24, 64, {3, 3}, 1, {1, 1, 1, 1}, true, 1, 2, 0, kInfinity, 2},
    {"PointwiseOnTwoThreads",
     1,
     40,
     40,
     64,
     64,
     {1, 1},
     1,
     {0, 0, 0, 0},
     true,
     1,
     2,
     0,
     kInfinity,
     2},
    {"LargeWeights", 1, 7, 7, 512, 640},
    winograd({"Winograd", 1, 8, 12, 32, 48, {}, 1, {1, 1, 1, 1}}),
    winograd({"WinogradOfOddSizes", 3, 13, 11, 48, 32, {}, 1, {1, 1, 1, 1}}),
    winograd({"WinogradWithoutPadding", 1, 10, 12, 32, 32}),
    winograd({"WinogradUnevenPadding", 2, 9, 9, 32, 32, {}, 1, {2, 0, 1, 3}, false}),
    winograd({"WinogradBounds", 1, 6, 8, 32, 32, {}, 1, {1, 1, 1, 1}, true, -128, -5, 0, 2.5f}),
    winograd(
        {"WinogradOfBlocks", 1, 40, 37, 64, 80, {}, 1, {1, 1, 1, 1}, true, 1, 2, 0, kInfinity, 2}),
    winograd({"WinogradOfMostChannels", 1, 4, 4, 3632, 32, {}, 1, {1, 1, 1, 1}, false, 0, 0}),
    winograd({"WinogradOfLargestSums", 1, 6, 6, 3632, 32, {}, 1, {0, 0, 0, 0}, false, 0, 0}, true),
    {"Linear",
     1,
     1,
     13,
     72,
     32,
     {1, 1},
     1,
     {0, 0, 0, 0},
     true,
     3,
     -5,
     -kInfinity,
     kInfinity,
     1,
     true},
};

std::vector<Case> depthwise_cases() {
  std::vector<Case> cases = {
      depthwise("Depthwise", 9, 11, 16, 3),
      depthwise("DepthwiseOfTwoPanels", 8, 10, 32, 3),
      depthwise("DepthwiseWithLastPanelInPart", 7, 8, 37, 3),
      depthwise("DepthwiseStrided", 9, 12, 48, 3, 2),
      depthwise("DepthwiseStridedByFour", 17, 18, 16, 3, 4),
      depthwise("DepthwiseOfOneResult", 1, 1, 24, 3),
      depthwise("DepthwiseFive", 9, 7, 16, 5),
      depthwise("DepthwiseFiveStrided", 11, 14, 40, 5, 2),
      depthwise("DepthwiseFiveOfASmallImage", 2, 2, 16, 5),
      depthwise("DepthwiseOfManyRows", 70, 70, 96, 3),
      depthwise("DepthwiseWithoutPadding", 8, 9, 16, 3),
      depthwise("DepthwiseWithUnevenPadding", 8, 8, 24, 3, 2),
      depthwise("DepthwiseWithWidePadding", 5, 6, 16, 3),
      depthwise("DepthwiseOfBatches", 6, 7, 16, 5),
      depthwise("DepthwiseWithBounds", 8, 9, 16, 3),
      depthwise("DepthwiseAtTheLimits", 8, 9, 16, 5),
      depthwise("DepthwiseWithoutBias", 8, 9, 16, 3),
      depthwise("DepthwiseOnTwoThreads", 14, 15, 96, 3),
      depthwise("DepthwiseOfUnevenPanelsOnTwoThreads", 14, 15, 72, 5),
  };
  const auto named = [&](const std::string& name) -> Case& {
    return *std::ranges::find_if(cases, [&](const Case& c) { return c.name == name; });
  };
  std::ranges::fill(named("DepthwiseWithoutPadding").pads, 0);
  named("DepthwiseWithUnevenPadding").pads[0] = named("DepthwiseWithUnevenPadding").pads[3] = 0;
  std::ranges::fill(named("DepthwiseWithWidePadding").pads, 2);
  named("DepthwiseOfBatches").images = 3;
  named("DepthwiseWithBounds").min = 0;
  named("DepthwiseWithBounds").max = 2.5f;
  named("DepthwiseAtTheLimits").zero_point = -128;
  named("DepthwiseAtTheLimits").out_zero_point = 127;
  named("DepthwiseWithoutBias").has_bias = false;
  named("DepthwiseOnTwoThreads").threads = 2;
  named("DepthwiseOfUnevenPanelsOnTwoThreads").threads = 2;
  return cases;
}

// Rows at a time; a panel of all rows at a time; an image.
const Case kSums[] = {
    with_residual({"", 2, 13, 11, 64, 48}, "SumOfRows", 0.04f),
    with_residual({"", 1, 5, 7, 67, 31}, "SumOfOddDepth", 0.06f, true),
    with_residual({"", 1, 7, 7, 512, 640}, "SumWithWeightsOfNoCache", 0.001f),
    with_residual({"", 2, 7, 9, 24, 16, {3, 3}, 1, {1, 1, 1, 1}}, "SumOfImages", 0.9f),
    with_residual({"", 1, 9, 7, 64, 16, {1, 1}, 1, {0, 0, 0, 0}, true, 3, -5, 0, 2.5f, 2},
                  "SumWithBounds", 0.03f),
    with_residual({"",
                   1,
                   1,
                   40,
                   72,
                   32,
                   {1, 1},
                   1,
                   {0, 0, 0, 0},
                   true,
                   3,
                   -5,
                   -kInfinity,
                   kInfinity,
                   1,
                   true},
                  "SumOfLinear", 0.05f),
};

std::string name_of(const testing::TestParamInfo<Case>& param) { return param.param.name; }
INSTANTIATE_TEST_SUITE_P(All, Int8Convolutions, testing::ValuesIn(kCases), name_of);
INSTANTIATE_TEST_SUITE_P(Sums, Int8Convolutions, testing::ValuesIn(kSums), name_of);
INSTANTIATE_TEST_SUITE_P(Depthwise, Int8Convolutions, testing::ValuesIn(depthwise_cases()),
                         name_of);

}  // namespace
}  // namespace edgewise::xnnpack
