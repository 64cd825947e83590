// Nodes against small numbers worked out by hand.
#include <gtest/gtest.h>

#include <cmath>

#include "payload_builder.h"

namespace edgewise::xnnpack {
namespace {

using Floats = std::vector<float>;
using Node = fb::XNodeUnion;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<int64_t> as_sizes(const Dims& dims) { return {dims.begin(), dims.end()}; }

// Runs a payload of fp32 inputs and one fp32 output.
Floats run_floats(const PayloadBuilder& builder, const std::vector<std::pair<Dims, Floats>>& inputs,
                  const Dims& output) {
  const auto payload = builder.bytes();
  auto delegate = make_delegate(payload);
  EXPECT_TRUE(delegate.ok()) << delegate.status().message();
  if (!delegate.ok()) return {};
  std::vector<std::unique_ptr<HostTensor>> tensors;
  std::vector<HostTensor*> arguments;
  for (const auto& [dims, data] : inputs) {
    tensors.push_back(std::make_unique<HostTensor>(ScalarType::kFloat, as_sizes(dims)));
    tensors.back()->fill(data);
  }
  tensors.push_back(std::make_unique<HostTensor>(ScalarType::kFloat, as_sizes(output)));
  for (auto& tensor : tensors) arguments.push_back(tensor.get());
  const Status status = run(**delegate, arguments);
  EXPECT_TRUE(status.ok()) << status.message();
  return tensors.back()->read<float>();
}

void expect_near(const Floats& got, const Floats& expected, float tolerance = 1e-5f) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], tolerance) << i;
}

TEST(XnnpackNodes, AddBroadcastsAndClamps) {
  PayloadBuilder b;
  const uint32_t x = b.input({2, 2}), y = b.input({2}), out = b.output({2, 2});
  b.binary(Node::XNNAdd, x, y, out);
  b.bound(0, 5);
  expect_near(run_floats(b, {{{2, 2}, {1, 2, 3, 4}}, {{2}, {-2, 2}}}, {2, 2}), {0, 4, 1, 5});
}

// ExecuTorch's files have such ones where two partitions meet.
TEST(XnnpackNodes, WhatNobodyReadsIsLeftOut) {
  PayloadBuilder b;
  const uint32_t x = b.input({2}), y = b.input({3}), once = b.internal({2}),
                 twice = b.internal({2});
  const uint32_t out = b.output({3});
  b.unary(Node::XNNAbs, x, once);
  b.unary(Node::XNNNegate, y, out);
  b.unary(Node::XNNNegate, once, twice);
  expect_near(run_floats(b, {{{2}, {-1, 1}}, {{3}, {1, -2, 3}}}, {3}), {-1, 2, -3});
}

struct UnaryCase {
  Node type;
  Floats expected;
};
class XnnpackUnary : public testing::TestWithParam<UnaryCase> {};
TEST_P(XnnpackUnary, MatchesNumbers) {
  PayloadBuilder b;
  const uint32_t x = b.input({3}), out = b.output({3});
  b.unary(GetParam().type, x, out);
  expect_near(run_floats(b, {{{3}, {0.25f, 1, 2.25f}}}, {3}), GetParam().expected);
}
INSTANTIATE_TEST_SUITE_P(
    All, XnnpackUnary,
    testing::Values(UnaryCase{Node::XNNSigmoid, {0.5621765f, 0.7310586f, 0.9046505f}},
                    UnaryCase{Node::XNNFloor, {0, 1, 2}}, UnaryCase{Node::XNNCeiling, {1, 1, 3}},
                    UnaryCase{Node::XNNSquareRoot, {0.5f, 1, 1.5f}},
                    UnaryCase{Node::XNNReciprocalSquareRoot, {2, 1, 0.6666667f}},
                    UnaryCase{Node::XNNHardswish, {0.1354167f, 0.6666667f, 1.96875f}},
                    UnaryCase{Node::XNNNegate, {-0.25f, -1, -2.25f}},
                    UnaryCase{Node::XNNSquare, {0.0625f, 1, 5.0625f}},
                    UnaryCase{Node::XNNAbs, {0.25f, 1, 2.25f}},
                    UnaryCase{Node::XNNLog, {-1.3862944f, 0, 0.8109302f}},
                    UnaryCase{Node::XNNGelu, {0.1496766f, 0.8413447f, 2.2224937f}},
                    UnaryCase{Node::XNNTanh, {0.2449187f, 0.7615942f, 0.9780261f}},
                    UnaryCase{Node::XNNExp, {1.2840254f, 2.7182818f, 9.4877358f}},
                    UnaryCase{Node::XNNSin, {0.2474040f, 0.8414710f, 0.7780732f}},
                    UnaryCase{Node::XNNCos, {0.9689124f, 0.5403023f, -0.6281736f}},
                    UnaryCase{Node::XNNCopy, {0.25f, 1, 2.25f}},
                    UnaryCase{Node::XNNSoftmax, {0.0951832f, 0.2015029f, 0.7033140f}}),
    [](const auto& test) { return std::string(fb::EnumNameXNodeUnion(test.param.type)); });

PayloadBuilder convolution(Floats filter, uint32_t pad, fb::_XNNNodeConvT** node) {
  PayloadBuilder b;
  const uint32_t x = b.input({1, 3, 3, 1});
  const uint32_t w = b.constant<float>({1, 2, 2, 1}, filter);
  const uint32_t bias = b.constant<float>({1}, {0.5f});
  const uint32_t out = b.output({1, 2 + 2 * pad, 2 + 2 * pad, 1});
  fb::_XNNNodeConvT table;
  table.padding_top = table.padding_right = table.padding_bottom = table.padding_left = pad;
  table.kernel_height = table.kernel_width = 2;
  table.subsampling_height = table.subsampling_width = 1;
  table.dilation_height = table.dilation_width = 1;
  table.group_input_channels = table.group_output_channels = table.groups = 1;
  table.input1_id = x;
  table.filter_id = w;
  table.bias_id = bias;
  table.output_id = out;
  *node = b.node(Node::XNNConv2d, table);
  return b;
}

const Floats kImage = {1, 2, 3, 4, 5, 6, 7, 8, 9};

TEST(XnnpackNodes, Convolution) {
  fb::_XNNNodeConvT* node;
  PayloadBuilder b = convolution({1, 0, 0, 1}, 0, &node);
  b.bound(7, 1000);
  expect_near(run_floats(b, {{{1, 3, 3, 1}, kImage}}, {1, 2, 2, 1}), {7, 8.5f, 12.5f, 14.5f});
}

// XNNPACK's own way to join these overwrites the paddings.
TEST(XnnpackNodes, ClampAfterPaddedConvolution) {
  fb::_XNNNodeConvT* node;
  PayloadBuilder b = convolution({1, 0, 0, 1}, 1, &node);
  const uint32_t middle = b.internal({1, 4, 4, 1});
  const uint32_t out = node->output_id;
  node->output_id = middle;
  b.unary(Node::XNNClamp, middle, out);
  b.bound(-kInfinity, 10);
  expect_near(
      run_floats(b, {{{1, 3, 3, 1}, kImage}}, {1, 4, 4, 1}),
      {1.5f, 2.5f, 3.5f, .5f, 4.5f, 6.5f, 8.5f, 3.5f, 7.5f, 10, 10, 6.5f, .5f, 7.5f, 8.5f, 9.5f});
}

TEST(XnnpackNodes, PadBeforeConvolution) {
  fb::_XNNNodeConvT* node;
  PayloadBuilder b = convolution({1, 1, 1, 1}, 0, &node);
  b.tensor(node->output_id).dims = {1, 3, 2, 1};
  const uint32_t padded = b.internal({1, 4, 3, 1});
  fb::XNNStaticConstantPadT pad;
  pad.pre_paddings = {0, 1, 0, 0};
  pad.post_paddings = {0, 0, 0, 0};
  pad.input_id = node->input1_id;
  pad.output_id = padded;
  node->input1_id = padded;
  b.node(Node::XNNStaticConstantPad, pad);
  std::swap(b.graph.xnodes[0], b.graph.xnodes[1]);
  expect_near(run_floats(b, {{{1, 3, 3, 1}, kImage}}, {1, 3, 2, 1}),
              {3.5f, 5.5f, 12.5f, 16.5f, 24.5f, 28.5f});
}

TEST(XnnpackNodes, FullyConnectedWithoutBias) {
  PayloadBuilder b;
  const uint32_t x = b.input({2, 3});
  const uint32_t w = b.constant<float>({2, 3}, {1, 0, -1, 2, 2, 2});
  const uint32_t out = b.output({2, 2});
  b.linear(x, w, kNoId, out);
  expect_near(run_floats(b, {{{2, 3}, {1, 2, 3, 4, 5, 7}}}, {2, 2}), {-2, 12, -3, 32});
}

TEST(XnnpackNodes, TransposeSliceReshapeConcatenate) {
  PayloadBuilder b;
  const uint32_t x = b.input({2, 3}), t = b.internal({3, 2}), s = b.internal({2, 2});
  const uint32_t r = b.internal({1, 4}), out = b.output({2, 4});
  fb::XNNStaticTransposeT transpose;
  transpose.num_dims = 2;
  transpose.perm = {1, 0};
  transpose.input_id = x;
  transpose.output_id = t;
  b.node(Node::XNNStaticTranspose, transpose);
  fb::XNNStaticSliceT slice;
  slice.num_dims = 2;
  slice.offsets = {1, 0};
  slice.sizes = {2, 0};
  slice.input_id = t;
  slice.output_id = s;
  b.node(Node::XNNStaticSlice, slice);
  fb::XNNStaticReshapeT reshape;
  reshape.num_dims = 2;
  reshape.new_shape = {1, 0};
  reshape.input_id = s;
  reshape.output_id = r;
  b.node(Node::XNNStaticReshape, reshape);
  fb::_XNNCatT cat;
  cat.axis = 0;
  cat.input1_id = cat.input2_id = r;
  cat.output_id = out;
  b.node(Node::XNNConcatenate2, cat);
  expect_near(run_floats(b, {{{2, 3}, {1, 2, 3, 4, 5, 6}}}, {2, 4}), {2, 5, 3, 6, 2, 5, 3, 6});
}

TEST(XnnpackNodes, PoolingOfAllKinds) {
  for (const Node type : {Node::XNNMaxPooling2d, Node::XNNAvgPooling2d}) {
    PayloadBuilder b;
    const uint32_t x = b.input({1, 3, 3, 1}), out = b.output({1, 2, 2, 1});
    const bool is_max = type == Node::XNNMaxPooling2d;
    fb::_XNNPooling2DT table;
    table.pooling_height = table.pooling_width = 2;
    table.stride_height = table.stride_width = 1;
    // Averages have none: ExecuTorch 1.5 writes 0.
    table.dilation_height = table.dilation_width = is_max ? 1 : 0;
    table.input_id = x;
    table.output_id = out;
    b.node(type, table);
    expect_near(run_floats(b, {{{1, 3, 3, 1}, kImage}}, {1, 2, 2, 1}),
                is_max ? Floats{5, 6, 8, 9} : Floats{3, 4, 6, 7});
  }
  PayloadBuilder b;
  const uint32_t x = b.input({1, 3, 3, 1}), out = b.output({1, 1, 1, 1});
  b.unary(Node::XNNGlobalAvgPooling2d, x, out, 0x40);
  b.bound(0, 4.5f);
  expect_near(run_floats(b, {{{1, 3, 3, 1}, kImage}}, {1, 1, 1, 1}), {4.5f});
}

// XNNPACK counts positions in a window column by column.
TEST(XnnpackNodes, ArgMaxGivesInt64) {
  PayloadBuilder b;
  const uint32_t x = b.input({1, 2, 2, 2}), value = b.output({1, 1, 1, 2});
  const uint32_t index = b.output({1, 1, 1, 2});
  fb::XNNArgMaxPooling2dT table;
  table.pooling_height = table.pooling_width = 2;
  table.input_id = x;
  table.output_value_id = value;
  table.output_index_id = index;
  b.node(Node::XNNArgMaxPooling2d, table);
  const auto payload = b.bytes();
  auto delegate = make_delegate(payload);
  ASSERT_TRUE(delegate.ok()) << delegate.status().message();
  HostTensor in(ScalarType::kFloat, {1, 2, 2, 2}), best(ScalarType::kFloat, {1, 1, 1, 2});
  HostTensor where(ScalarType::kLong, {1, 1, 1, 2});
  in.fill<float>({1, 9, 2, 0, 7, 0, 3, 0});
  ASSERT_TRUE(run(**delegate, {&in, &best, &where}).ok());
  EXPECT_EQ(best.read<float>(), (Floats{7, 9}));
  EXPECT_EQ(where.read<int64_t>(), (std::vector<int64_t>{1, 0}));
}

TEST(XnnpackNodes, BatchMatrixMultiplyWithTransposedRight) {
  PayloadBuilder b;
  const uint32_t x = b.input({2, 1, 2}), y = b.input({1, 2, 2}), out = b.output({2, 1, 2});
  b.binary(Node::XNNBatchMatrixMultiply, x, y, out, 1);
  expect_near(run_floats(b, {{{2, 1, 2}, {1, 2, 3, 4}}, {{1, 2, 2}, {1, 0, 1, 1}}}, {2, 1, 2}),
              {1, 3, 3, 7});
}

TEST(XnnpackNodes, AttentionOfOneToken) {
  PayloadBuilder b;
  const uint32_t q = b.input({1, 1, 1, 2}), k = b.input({1, 1, 1, 2}), v = b.input({1, 1, 1, 2});
  const uint32_t scale = b.constant<float>({2}, {1, 1});
  const uint32_t mask = b.constant<float>({1, 1}, {0});
  const uint32_t out = b.output({1, 1, 1, 2});
  fb::XNNScaledDotProductAttentionT table;
  table.query_id = q;
  table.key_id = k;
  table.value_id = v;
  table.scale_id = scale;
  table.mask_id = mask;
  table.output_id = out;
  b.node(Node::XNNScaledDotProductAttention, table);
  const Dims dims = {1, 1, 1, 2};
  expect_near(run_floats(b, {{dims, {1, 2}}, {dims, {3, 4}}, {dims, {5, 6}}}, dims), {5, 6});
}

TEST(XnnpackNodes, QuantizeAddDequantize) {
  PayloadBuilder b;
  const uint32_t x = b.input({4});
  const uint32_t q = b.internal({4}, fb::XNNDatatype::qint8);
  const uint32_t sum = b.internal({4}, fb::XNNDatatype::qint8), out = b.output({4});
  b.per_tensor(q, 0.5f, 3);
  b.per_tensor(sum, 1, -2);
  b.unary(Node::XNNConvert, x, q);
  b.binary(Node::XNNAdd, q, q, sum);
  b.unary(Node::XNNConvert, sum, out);
  expect_near(run_floats(b, {{{4}, {0, 1.5f, -2.6f, 100}}}, {4}), {0, 3, -5, 124});
}

TEST(XnnpackNodes, DynamicallyQuantizedFullyConnected) {
  PayloadBuilder b;
  const uint32_t x = b.input({1, 2});
  const uint32_t q = b.internal({1, 2}, fb::XNNDatatype::qdint8);
  const uint32_t w = b.constant<int8_t>({2, 2}, {1, 2, -3, 4}, fb::XNNDatatype::qcint8);
  const uint32_t out = b.output({1, 2});
  b.per_token(q, 1);
  b.per_channel(w, {1, 0.5f}, 0);
  b.unary(Node::XNNConvert, x, q);
  b.linear(q, w, kNoId, out);
  // 8 bits for numbers up to 2: off by 2/255 times the weights at most.
  expect_near(run_floats(b, {{{1, 2}, {1, 2}}}, {1, 2}), {5, 2.5f}, 0.05f);
}

TEST(XnnpackNodes, ChannelsLastTensorsAreTakenAsTheyLie) {
  PayloadBuilder b;
  const uint32_t x = b.input({1, 1, 2, 3}), out = b.output({1, 1, 2, 3});
  const uint32_t y = b.constant<float>({3}, {10, 20, 30});
  b.binary(Node::XNNAdd, x, y, out);
  const auto payload = b.bytes();
  auto delegate = make_delegate(payload);
  ASSERT_TRUE(delegate.ok());
  HostTensor in(ScalarType::kFloat, {1, 3, 1, 2}, {0, 2, 3, 1});
  HostTensor sum(ScalarType::kFloat, {1, 3, 1, 2}, {0, 2, 3, 1});
  in.fill<float>({1, 2, 3, 4, 5, 6});
  ASSERT_TRUE(run(**delegate, {&in, &sum}).ok());
  EXPECT_EQ(sum.read<float>(), (Floats{11, 22, 33, 14, 25, 36}));
}

}  // namespace
}  // namespace edgewise::xnnpack
