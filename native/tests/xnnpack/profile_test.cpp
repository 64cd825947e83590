// What a profile tells of XNNPACK's operators and of fused kernels: names, nodes, times.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "backends/xnnpack/executor/float_kernels.h"
#include "payload_builder.h"
#include "random_values.h"

namespace edgewise::xnnpack {
namespace {

using Node = fb::XNodeUnion;
using Indices = std::vector<uint32_t>;

constexpr uint32_t kChannels = 32;
constexpr uint32_t kSize = 24;
const Dims kImage = {1, kSize, kSize, kChannels};

void convolve(PayloadBuilder* b, uint32_t in, uint32_t out) {
  fb::_XNNNodeConvT table;
  table.padding_top = table.padding_right = table.padding_bottom = table.padding_left = 1;
  table.kernel_height = table.kernel_width = 3;
  table.subsampling_height = table.subsampling_width = 1;
  table.dilation_height = table.dilation_width = 1;
  table.groups = 1;
  table.group_input_channels = table.group_output_channels = kChannels;
  table.input1_id = in;
  const Dims filter = {kChannels, 3, 3, kChannels};
  table.filter_id = b->constant<float>(filter, random_floats(size_t{9} * kChannels * kChannels, 7));
  table.bias_id = b->constant<float>({kChannels}, random_floats(kChannels, 8));
  table.output_id = out;
  b->node(Node::XNNConv2d, table);
}

// 0: convolution, 1: clamp, which is folded into it; 2: sigmoid; 3: concatenation of both.
PayloadBuilder image_graph() {
  PayloadBuilder b;
  const uint32_t x = b.input(kImage);
  const uint32_t y = b.internal(kImage), bounded = b.internal(kImage), s = b.internal(kImage);
  convolve(&b, x, y);
  b.unary(Node::XNNClamp, y, bounded);
  b.bound(0, 6);
  b.unary(Node::XNNSigmoid, bounded, s);
  fb::_XNNCatT table;
  table.axis = 3;
  table.input1_id = bounded;
  table.input2_id = s;
  table.output_id = b.output({1, kSize, kSize, 2 * kChannels});
  b.node(Node::XNNConcatenate2, table);
  return b;
}

struct Part {
  std::string name;
  Indices nodes;
};

// Runs with a profile; every part within the run, one after the other.
std::vector<Part> profiled_run(Delegate& delegate, const std::vector<HostTensor*>& tensors) {
  std::vector<Value*> arguments;
  for (HostTensor* tensor : tensors) arguments.push_back(&tensor->value);
  EXPECT_TRUE(delegate.prepare_profile().ok());
  RunProfile profile;
  profile.start(16);
  const Status status = delegate.execute_profiled(arguments, profile);
  EXPECT_TRUE(status.ok()) << status.message();
  profile.end_instruction();
  profile.stop();
  std::vector<Part> parts;
  int64_t at = profile.begin();
  for (const ProfileEvent& event : profile.events()) {
    if (event.part == ProfileEvent::kWhole) continue;
    EXPECT_GE(event.begin, at);
    EXPECT_GE(event.end, event.begin);
    at = event.end;
    const ProfilePart& part = profile.part(event.part);
    parts.push_back({part.name, part.nodes});
  }
  EXPECT_LE(at, profile.end());
  return parts;
}

class XnnpackProfile : public ::testing::TestWithParam<bool> {};  // fused kernels

TEST_P(XnnpackProfile, NamesOperatorsAndTheirNodes) {
  const std::vector<std::byte> payload = image_graph().bytes();  // outlives the delegate
  auto delegate = make_delegate(payload, nullptr, nullptr, 2, GetParam());
  ASSERT_TRUE(delegate.ok()) << delegate.status().message();
  HostTensor in(ScalarType::kFloat, {1, kSize, kSize, kChannels});
  in.fill(random_floats(size_t{kSize} * kSize * kChannels, 1));
  HostTensor plain(ScalarType::kFloat, {1, kSize, kSize, 2 * kChannels});
  HostTensor out(ScalarType::kFloat, {1, kSize, kSize, 2 * kChannels});
  ASSERT_TRUE(run(**delegate, {&in, &plain}).ok());
  for (int repetition = 0; repetition < 2; ++repetition) {
    const auto parts = profiled_run(**delegate, {&in, &out});
    ASSERT_EQ(parts.size(), 3u);
    EXPECT_NE(parts[0].name.find("onv"), std::string::npos) << parts[0].name;
    const bool is_own = parts[0].name.starts_with("edgewise");
    EXPECT_EQ(is_own, GetParam() && float_kernels() != nullptr) << parts[0].name;
    EXPECT_EQ(parts[0].nodes, (Indices{0, 1}));
    EXPECT_EQ(parts[1].nodes, Indices{2});
    EXPECT_TRUE(parts[1].name.starts_with("Sigmoid")) << parts[1].name;
    EXPECT_NE(parts[2].name.find("copy_nc_x32"), std::string::npos) << parts[2].name;
    EXPECT_EQ(parts[2].nodes, Indices{3});
  }
  EXPECT_EQ(out.read<float>(), plain.read<float>());
  HostTensor after(ScalarType::kFloat, {1, kSize, kSize, 2 * kChannels});
  ASSERT_TRUE(run(**delegate, {&in, &after}).ok());
  EXPECT_EQ(after.read<float>(), plain.read<float>());
}
INSTANTIATE_TEST_SUITE_P(OwnKernels, XnnpackProfile, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "Ours" : "Theirs"; });

TEST(XnnpackProfiles, TellPlanningWhenShapesChange) {
  PayloadBuilder b;
  const uint32_t x = b.input({64, 8}), y = b.internal({64, 8}), out = b.output({64, 8});
  b.unary(Node::XNNNegate, x, y);
  b.unary(Node::XNNAbs, y, out);
  const std::vector<std::byte> payload = b.bytes();
  auto delegate = make_delegate(payload);
  ASSERT_TRUE(delegate.ok());
  const auto names = [&](int64_t rows) {
    HostTensor in(ScalarType::kFloat, {rows, 8});
    in.fill(random_floats(static_cast<size_t>(rows) * 8, 5));
    HostTensor result(ScalarType::kFloat, {64, 8}, {}, Dynamism::kDynamicBound);
    std::string text;
    for (const Part& part : profiled_run(**delegate, {&in, &result})) {
      text += part.name == "planning" ? "p" : std::to_string(part.nodes.at(0));
    }
    for (const float item : result.read<float>()) EXPECT_GE(item, 0);
    return text;
  };
  EXPECT_EQ(names(3), "p01");
  EXPECT_EQ(names(3), "01");
  EXPECT_EQ(names(64), "p01");
  EXPECT_EQ(names(5), "p01");
  EXPECT_EQ(names(5), "01");
}

TEST(XnnpackProfiles, SurviveACallThatWasRefused) {
  PayloadBuilder b;
  const uint32_t x = b.input({2, 8}), out = b.output({2, 8});
  b.unary(Node::XNNNegate, x, out);
  const std::vector<std::byte> payload = b.bytes();
  auto delegate = make_delegate(payload);
  ASSERT_TRUE(delegate.ok());
  HostTensor deep(ScalarType::kFloat, {1, 2, 8}), in(ScalarType::kFloat, {2, 8});
  HostTensor result(ScalarType::kFloat, {2, 8});
  in.fill(std::vector<float>(16, 3));
  EXPECT_FALSE(run(**delegate, {&deep, &result}).ok());
  EXPECT_EQ(profiled_run(**delegate, {&in, &result}).back().nodes, Indices{0});
  EXPECT_EQ(result.read<float>(), std::vector<float>(16, -3));
}

TEST(XnnpackProfiles, CountImageEntries) {
  PayloadBuilder b;
  const uint32_t x = b.input({1, 3, 8, 8}), y = b.internal({1, 8, 8, 3});
  const uint32_t out = b.output({1, 8, 8, 3});
  fb::XNNStaticTransposeT table;
  table.num_dims = 4;
  table.perm = {0, 2, 3, 1};
  table.input_id = x;
  table.output_id = y;
  b.node(Node::XNNStaticTranspose, table);
  b.unary(Node::XNNNegate, y, out);
  const std::vector<std::byte> payload = b.bytes();
  auto delegate = make_delegate(payload);
  ASSERT_TRUE(delegate.ok());
  HostTensor in(ScalarType::kFloat, {1, 3, 8, 8}), result(ScalarType::kFloat, {1, 8, 8, 3});
  in.fill(std::vector<float>(192, 1));
  ASSERT_TRUE(run(**delegate, {&in, &result}).ok());
  const auto parts = profiled_run(**delegate, {&in, &result});
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].name, "edgewise Image entry");
  EXPECT_EQ(parts[0].nodes, Indices{0});
  EXPECT_EQ(parts[1].nodes, Indices{1});
}

}  // namespace
}  // namespace edgewise::xnnpack
