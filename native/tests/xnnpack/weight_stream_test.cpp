// Products whose weights are read past the caches give the same bits.
#include <gtest/gtest.h>

#include <random>

// First: it has the definitions of the payload's own header and more.
#include "payload_builder.h"

#include "backends/xnnpack/weight_stream.h"
#include "random_values.h"

namespace edgewise::xnnpack {
namespace {

struct Case {
  uint32_t rows, depth, columns;
  int threads;
};

class WeightStreams : public testing::TestWithParam<Case> {};

// rows x depth, quantized as it runs, times 4-bit weights of which 32 share a scale.
std::vector<std::byte> product(const Case& test) {
  constexpr uint32_t kGroup = 32;
  std::mt19937 engine(test.depth + test.columns);
  const auto random = [&] { return static_cast<uint8_t>(engine()); };
  std::vector<uint8_t> weights(size_t{test.columns} * test.depth / 2);
  std::ranges::generate(weights, random);
  fb::PerChannelGroupQuantT scales;
  for (uint32_t i = 0; i < test.columns * test.depth / kGroup; ++i) {
    scales.scale.push_back(static_cast<float>(1 + random()) / 512);
  }
  scales.channel_dim = 0;
  scales.group_size = kGroup;

  PayloadBuilder b;
  const uint32_t x = b.input({test.rows, test.depth}), y = b.output({test.rows, test.columns});
  const uint32_t q = b.internal({test.rows, test.depth}, fb::XNNDatatype::qdint8);
  const uint32_t w =
      b.constant<uint8_t>({test.columns, test.depth}, weights, fb::XNNDatatype::qbint4);
  b.per_token(q, 1);
  b.quantized(w).quant_params.Set(scales);
  b.unary(fb::XNodeUnion::XNNConvert, x, q);
  fb::XNNFullyConnectedT table;
  table.input1_id = q;
  table.filter_id = w;
  table.bias_id = kNoId;
  table.output_id = y;
  b.node(fb::XNodeUnion::XNNFullyConnected, table);
  return b.bytes();
}

TEST_P(WeightStreams, GiveTheSameBits) {
  const Case& test = GetParam();
  auto delegate = make_delegate(product(test), nullptr, nullptr, test.threads);
  ASSERT_TRUE(delegate.ok()) << delegate.status().message();
  HostTensor in(ScalarType::kFloat, {test.rows, test.depth});
  HostTensor out(ScalarType::kFloat, {test.rows, test.columns});
  in.fill(random_floats(size_t{test.rows} * test.depth, 1));
  ASSERT_TRUE(run(**delegate, {&in, &out}).ok());
  const Floats cached = out.read<float>();
  const size_t before = WeightStream::answers();
  out.fill(Floats(cached.size()));
  {
    const WeightStream stream(SIZE_MAX);
    ASSERT_TRUE(run(**delegate, {&in, &out}).ok());
  }
  EXPECT_EQ(out.read<float>(), cached);
#if defined(__x86_64__) && defined(EDGEWISE_XNNPACK_PATCHED)
  EXPECT_EQ(WeightStream::answers() - before, test.rows == 1 ? 1u : 0u);
#endif
  ASSERT_TRUE(run(**delegate, {&in, &out}).ok());
  EXPECT_EQ(out.read<float>(), cached);
}

INSTANTIATE_TEST_SUITE_P(All, WeightStreams,
                         testing::Values(Case{1, 32, 16, 1}, Case{1, 64, 40, 1},
                                         Case{1, 288, 1000, 2}, Case{1, 1024, 512, 3},
                                         Case{2, 64, 40, 1}, Case{40, 64, 33, 2}),
                         [](const auto& test) {
                           return std::to_string(test.param.rows) + "x" +
                                  std::to_string(test.param.depth) + "x" +
                                  std::to_string(test.param.columns);
                         });

}  // namespace
}  // namespace edgewise::xnnpack
