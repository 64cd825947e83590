// Payloads that break rules: each is refused with a message, and none crashes.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "payload_builder.h"

namespace edgewise::xnnpack {
namespace {

using Node = fb::XNodeUnion;

// Values: 0 input, 1 filter, 2 bias, 3 after the convolution, 4 transposed, 5 reshaped,
// 6 quantized at run time, 7 weights, 8 after the matrix, 9 scale, 10 output, by way of Add.
PayloadBuilder network() {
  PayloadBuilder b;
  b.input({1, 4, 4, 2});
  b.constant<float>({2, 2, 2, 2}, std::vector<float>(16, 0.5f));
  b.constant<float>({2}, {1, 2});
  b.internal({1, 3, 3, 2});
  b.internal({1, 2, 3, 3});
  b.internal({2, 9});
  b.internal({2, 9}, fb::XNNDatatype::qdint8);
  b.constant<int8_t>({3, 9}, std::vector<int8_t>(27, 2), fb::XNNDatatype::qcint8);
  b.internal({2, 3});
  b.constant<float>({3}, {1, 2, 3});
  b.output({2, 3});
  b.per_token(6, 1);
  b.per_channel(7, {1, 1, 1}, 0);
  fb::_XNNNodeConvT conv;
  conv.kernel_height = conv.kernel_width = 2;
  conv.subsampling_height = conv.subsampling_width = 1;
  conv.dilation_height = conv.dilation_width = conv.groups = 1;
  conv.group_input_channels = conv.group_output_channels = 2;
  conv.input1_id = 0;
  conv.filter_id = 1;
  conv.bias_id = 2;
  conv.output_id = 3;
  b.node(Node::XNNConv2d, conv);
  b.bound(0, 6);
  fb::XNNStaticTransposeT transpose;
  transpose.num_dims = 4;
  transpose.perm = {0, 3, 1, 2};
  transpose.input_id = 3;
  transpose.output_id = 4;
  b.node(Node::XNNStaticTranspose, transpose);
  fb::XNNStaticReshapeT reshape;
  reshape.num_dims = 2;
  reshape.new_shape = {2, 9};
  reshape.input_id = 4;
  reshape.output_id = 5;
  b.node(Node::XNNStaticReshape, reshape);
  b.unary(Node::XNNConvert, 5, 6);
  b.linear(6, 7, kNoId, 8);
  b.binary(Node::XNNAdd, 8, 9, 10);
  return b;
}

template <typename T>
T* table(PayloadBuilder& b, size_t node) {
  return static_cast<T*>(b.graph.xnodes[node]->xnode_union.value);
}
fb::_XNNNodeConvT* conv(PayloadBuilder& b) { return table<fb::_XNNNodeConvT>(b, 0); }

template <typename T>
void replace(PayloadBuilder& b, size_t node, Node type, T table) {
  fb::XNodeUnionUnion& stored = b.graph.xnodes[node]->xnode_union;
  stored.Reset();
  stored.type = type;
  stored.value = new T(std::move(table));
}

struct Case {
  const char* name;
  std::function<void(PayloadBuilder&)> damage;
  const char* message;  // part of it
};

const Case kCases[] = {
    {"no_nodes", [](auto& b) { b.graph.xnodes.clear(); }, "must have nodes"},
    {"no_values", [](auto& b) { b.graph.xvalues.clear(); }, "must have nodes and values"},
    {"externals_beyond_values", [](auto& b) { b.graph.num_externs = 4000000000; }, "4000000000"},
    {"external_id_out_of_range", [](auto& b) { b.tensor(10).external_id = 7; }, "below 2"},
    {"external_id_twice", [](auto& b) { b.tensor(10).external_id = 0; }, "unique"},
    {"input_without_external_id", [](auto& b) { b.tensor(0).external_id = kNoId; }, "external id"},
    {"input_and_output", [](auto& b) { b.tensor(0).flags = 3; }, "flags"},
    {"persistent", [](auto& b) { b.tensor(3).flags = 4; }, "flags"},
    {"no_output", [](auto& b) { b.tensor(10).flags = 1; }, "must have an output"},
    {"id_twice", [](auto& b) { b.tensor(4).id_out = 3; }, "unique"},
    {"datatype_0", [](auto& b) { b.tensor(3).datatype = fb::XNNDatatype::invalid; }, "datatype"},
    {"datatype_99", [](auto& b) { b.tensor(3).datatype = fb::XNNDatatype(99); }, "got 99"},
    {"bf16", [](auto& b) { b.tensor(3).datatype = fb::XNNDatatype::bf16; }, "result bf16"},
    {"quantized_without_scale", [](auto& b) { b.tensor(3).datatype = fb::XNNDatatype::qint8; },
     "without quantization"},
    {"rank_7", [](auto& b) { b.tensor(0).dims.assign(7, 1), b.tensor(0).num_dims = 7; },
     "at most 6"},
    {"rank_differs", [](auto& b) { b.tensor(0).num_dims = 3; }, "num_dims 3"},
    {"size_0", [](auto& b) { b.tensor(0).dims[1] = 0; }, "sizes"},
    {"size_overflow", [](auto& b) { b.tensor(0).dims.assign(4, 0x7fffffff); }, "sizes"},
    {"elements_wrap",  // 2^64 of them
     [](auto& b) {
       b.tensor(0).dims = {1u << 20, 1u << 20, 1u << 24, 1};
     },
     "elements at most"},
    {"size_4g", [](auto& b) { b.tensor(0).dims[1] = 0xffffffff; }, "sizes"},
    {"constant_too_short", [](auto& b) { b.graph.constant_data[1]->size = 60; }, "64 bytes"},
    {"constant_outside", [](auto& b) { b.graph.constant_data[1]->offset = 1 << 20; }, "must lie"},
    {"constant_overflow", [](auto& b) { b.graph.constant_data[1]->offset = UINT64_MAX - 8; },
     "must lie"},
    {"constant_index", [](auto& b) { b.tensor(1).constant_buffer_idx = 77; }, "below 5"},
    {"constant_name_unknown", [](auto& b) { b.graph.constant_data[1]->named_key = "w"; },
     "named data"},
    {"constant_is_input", [](auto& b) { b.tensor(0).constant_buffer_idx = 1; },
     "not be a constant"},
    {"scale_nan",
     [](auto& b) {
       b.per_channel(7, {1, NAN, 1}, 0);
     },
     "scales must be"},
    {"scale_negative",
     [](auto& b) {
       b.per_channel(7, {1, -1, 1}, 0);
     },
     "scales must be"},
    {"scales_too_few",
     [](auto& b) {
       b.per_channel(7, {1, 1}, 0);
     },
     "3 scales"},
    {"channel_dim",
     [](auto& b) {
       b.per_channel(7, {1, 1, 1}, 5);
     },
     "channel dimension"},
    {"channel_dim_negative",
     [](auto& b) {
       b.per_channel(7, {1, 1, 1}, -1);
     },
     "channel dimension"},
    {"channel_dim_other", [](auto& b) { b.per_channel(7, std::vector<float>(9, 1), 1); },
     "other channels"},
    {"scale_buffer_short",
     [](auto& b) {
       auto* quant = b.quantized(7).quant_params.AsPerChannelQuant();
       quant->scale_buffer_idx = 2;
       quant->num_scales = 3;
     },
     "3 scales"},
    {"batch_dims", [](auto& b) { b.per_token(6, 3); }, "num_nonbatch_dims"},
    {"rows_share_parameters", [](auto& b) { b.per_token(6, 2); }, "row by row"},
    {"reads_later", [](auto& b) { std::swap(b.graph.xnodes[1], b.graph.xnodes[2]); }, "before"},
    {"reads_unknown", [](auto& b) { conv(b)->input1_id = 55; }, "value 55"},
    {"reads_itself", [](auto& b) { conv(b)->input1_id = 3; }, "before"},
    {"writes_input", [](auto& b) { conv(b)->output_id = 0; }, "must not write"},
    {"writes_constant", [](auto& b) { conv(b)->output_id = 9; }, "must not write"},
    {"writes_twice", [](auto& b) { table<fb::_XNNNode1x1T>(b, 3)->output_id = 5; },
     "must not write"},
    {"kernel_0", [](auto& b) { conv(b)->kernel_height = 0; }, "kernel"},
    {"stride_0", [](auto& b) { conv(b)->subsampling_width = 0; }, "stride"},
    {"dilation_0", [](auto& b) { conv(b)->dilation_width = 0; }, "dilation"},
    {"dilation_huge", [](auto& b) { conv(b)->dilation_width = 1u << 31; }, "dilation"},
    {"padding_huge", [](auto& b) { conv(b)->padding_left = 0xffffffff; }, "paddings"},
    {"groups_0", [](auto& b) { conv(b)->groups = 0; }, "groups"},
    {"groups_huge", [](auto& b) { conv(b)->groups = 0x80000001; }, "groups"},
    {"channels_wrap",  // 2^33 + 2 of them
     [](auto& b) { conv(b)->groups = 1282, conv(b)->group_output_channels = 6700417; },
     "channels must be below"},
    {"groups_2", [](auto& b) { conv(b)->groups = 2; }, "filter must be"},
    {"channels", [](auto& b) { b.tensor(0).dims[3] = 3; }, "must have 2 channels"},
    {"window_too_large", [](auto& b) { conv(b)->dilation_width = 4; }, "must fit"},
    {"bias_shape", [](auto& b) { conv(b)->bias_id = 9; }, "bias must have 2"},
    {"bias_not_constant", [](auto& b) { conv(b)->bias_id = 0; }, "constants"},
    {"filter_missing", [](auto& b) { conv(b)->filter_id = kNoId; }, "must be defined"},
    {"flags_unknown", [](auto& b) { conv(b)->flags = 0x4000; }, "flags"},
    {"same_padding_and_padding", [](auto& b) { conv(b)->flags = 4, conv(b)->padding_left = 1; },
     "SAME"},
    {"min_above_max", [](auto& b) { b.graph.xnodes[0]->output_min_max->output_min = 9; }, "below"},
    {"min_nan", [](auto& b) { b.graph.xnodes[0]->output_min_max->output_min = NAN; }, "below"},
    {"perm_repeats", [](auto& b) { table<fb::XNNStaticTransposeT>(b, 1)->perm[0] = 1; }, "permute"},
    {"perm_out_of_range", [](auto& b) { table<fb::XNNStaticTransposeT>(b, 1)->perm[0] = 1u << 30; },
     "permute"},
    {"perm_short", [](auto& b) { table<fb::XNNStaticTransposeT>(b, 1)->perm.pop_back(); },
     "permute"},
    {"perm_long", [](auto& b) { table<fb::XNNStaticTransposeT>(b, 1)->perm.assign(900, 0); },
     "at most 6"},
    {"reshape_elements", [](auto& b) { table<fb::XNNStaticReshapeT>(b, 2)->new_shape[0] = 3; },
     "18"},
    {"reshape_two_open",
     [](auto& b) {
       table<fb::XNNStaticReshapeT>(b, 2)->new_shape = {0, 0};
     },
     "only one"},
    {"slice_wrap",
     [](auto& b) {
       fb::XNNStaticSliceT slice;
       slice.num_dims = 4;
       slice.offsets = {0, 0, 0, 0xffffffff};
       slice.sizes = {1, 3, 3, 2};
       slice.input_id = 3;
       slice.output_id = 4;
       replace(b, 1, Node::XNNStaticSlice, std::move(slice));
     },
     "must stay inside"},
    {"pad_wrap",
     [](auto& b) {
       fb::XNNStaticConstantPadT pad;
       pad.pre_paddings = {0, 0, 0, 0xffffffff};
       pad.post_paddings = {0, 0, 0, 1};
       pad.input_id = 3;
       pad.output_id = 4;
       replace(b, 1, Node::XNNStaticConstantPad, std::move(pad));
     },
     "must have sizes below"},
    {"reshape_wrap",
     [](auto& b) {
       table<fb::XNNStaticReshapeT>(b, 2)->new_shape = {1u << 20, 1u << 20, 1u << 24, 0};
     },
     "18"},
    {"reshape_overflow",
     [](auto& b) { table<fb::XNNStaticReshapeT>(b, 2)->new_shape.assign(6, 1u << 31); }, "18"},
    {"convert_types", [](auto& b) { table<fb::_XNNNode1x1T>(b, 3)->input_id = 3; }, "must"},
    {"add_shapes", [](auto& b) { b.tensor(9).dims[0] = 2; }, "go together"},
    {"add_types", [](auto& b) { table<fb::_XNNNode2x1T>(b, 5)->input2_id = 7; }, "same"},
    {"output_rank", [](auto& b) { b.tensor(10).dims = {6}, b.tensor(10).num_dims = 1; }, "must be"},
    {"output_not_written", [](auto& b) { b.graph.xnodes.pop_back(); }, "must be written by a node"},
    {"type_unknown", [](auto& b) { b.graph.xnodes[5]->xnode_union.Reset(); }, "type 0"},
};

class XnnpackHostile : public testing::TestWithParam<Case> {};
TEST_P(XnnpackHostile, IsRefused) {
  PayloadBuilder b = network();
  GetParam().damage(b);
  const auto bytes = b.bytes();
  const auto delegate = make_delegate(bytes);
  ASSERT_FALSE(delegate.ok());
  EXPECT_NE(delegate.status().message().find(GetParam().message), std::string::npos)
      << delegate.status().message();
}
INSTANTIATE_TEST_SUITE_P(All, XnnpackHostile, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

// Runs what can be made; only crashes count.
void try_payload(const std::vector<std::byte>& bytes) {
  auto delegate = make_delegate(bytes);
  if (!delegate.ok()) {
    EXPECT_FALSE(delegate.status().message().empty());
    return;
  }
  HostTensor in(ScalarType::kFloat, {1, 4, 4, 2}), out(ScalarType::kFloat, {2, 3});
  (void)run(**delegate, {&in, &out});
}

TEST(XnnpackDamage, NetworkItselfRuns) {
  const auto payload = network().bytes();
  auto delegate = make_delegate(payload);
  ASSERT_TRUE(delegate.ok()) << delegate.status().message();
  HostTensor in(ScalarType::kFloat, {1, 4, 4, 2}), out(ScalarType::kFloat, {2, 3});
  ASSERT_TRUE(run(**delegate, {&in, &out}).ok());
  // Bias 1 or 2, nine times, times 2, and the scale added; 8 bits on the way.
  const std::vector<float> expected = {19, 20, 21, 37, 38, 39};
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(out.read<float>()[i], expected[i], 0.2f);
  }
}

TEST(XnnpackDamage, EveryTruncationIsRefusedOrRuns) {
  const auto bytes = network().bytes();
  for (size_t size = 0; size < bytes.size(); ++size) {
    std::vector<std::byte> cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    try_payload(cut);
  }
}

TEST(XnnpackDamage, EveryBitFlipIsRefusedOrRuns) {
  const auto bytes = network().bytes();
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      auto flipped = bytes;
      flipped.reserve(flipped.size() + kReadPadding);
      flipped[i] ^= static_cast<std::byte>(1 << bit);
      try_payload(flipped);
    }
  }
}

TEST(XnnpackDamage, RandomBytesAreRefusedOrRun) {
  const auto bytes = network().bytes();
  std::mt19937 random(1);
  for (int round = 0; round < 5000; ++round) {
    auto damaged = bytes;
    damaged.reserve(damaged.size() + kReadPadding);
    for (uint32_t k = random() % 4; k < 4; ++k) {
      static constexpr uint8_t kBytes[] = {0, 1, 2, 3, 7, 0x7f, 0x80, 0xff};
      const uint32_t at = random() % static_cast<uint32_t>(bytes.size());
      damaged[at] = static_cast<std::byte>(kBytes[random() % 8]);
    }
    try_payload(damaged);
  }
}

TEST(XnnpackDamage, GarbageIsRefused) {
  for (const char* text : {"", "x", "0000XH00", "0000XN01", "XH00XH00XH00XH00XH00XH00XH00XH00"}) {
    const auto bytes = std::as_bytes(std::span(text, std::string_view(text).size()));
    const std::vector<std::byte> payload(bytes.begin(), bytes.end());
    EXPECT_FALSE(make_delegate(payload).ok()) << text;
  }
}

}  // namespace
}  // namespace edgewise::xnnpack
