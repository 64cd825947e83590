// Products whose weights are read past the caches give the same bits.
#include <gtest/gtest.h>

// First: it has the definitions of the payload's own header and more.
#include "payload_builder.h"

#include "backends/xnnpack/limit_cpu.h"
#include "backends/xnnpack/non_temporal_loads.h"
#include "random_values.h"

namespace edgewise::xnnpack {
namespace {

struct Case {
  uint32_t rows, depth, columns;
  int threads;
};

class NonTemporalWeights : public testing::TestWithParam<Case> {};

std::vector<std::byte> product(const Case& test) {
  PayloadBuilder b;
  const uint32_t x = b.input({test.rows, test.depth}), y = b.output({test.rows, test.columns});
  const uint32_t q = b.internal({test.rows, test.depth}, fb::XNNDatatype::qdint8);
  b.per_token(q, 1);
  b.unary(fb::XNodeUnion::XNNConvert, x, q);
  b.group_linear(q, y);
  return b.bytes();
}

TEST_P(NonTemporalWeights, GiveTheSameBits) {
  const Case& test = GetParam();
  if (test.depth / 32 % 2 != 0 && !takes_odd_groups()) {
    const auto payload = product(test);
    const auto refused = make_delegate(payload, nullptr, nullptr, test.threads);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.status().message().find("odd number of groups"), std::string::npos);
    return;
  }
  HostTensor in(ScalarType::kFloat, {test.rows, test.depth});
  HostTensor out(ScalarType::kFloat, {test.rows, test.columns});
  in.fill(random_floats(size_t{test.rows} * test.depth, 1));
  const auto result = [&] {
    const auto payload = product(test);
    auto delegate = make_delegate(payload, nullptr, nullptr, test.threads);
    EXPECT_TRUE(delegate.ok()) << delegate.status().message();
    out.fill(Floats(out.read<float>().size()));
    EXPECT_TRUE(run(**delegate, {&in, &out}).ok());
    return out.read<float>();
  };
  const Floats cached = result();
  {
    const NonTemporalLoads stream(SIZE_MAX);
    EXPECT_TRUE(NonTemporalLoads::are_on());
    EXPECT_EQ(result(), cached);
  }
  EXPECT_FALSE(NonTemporalLoads::are_on());
  EXPECT_EQ(result(), cached);
}

INSTANTIATE_TEST_SUITE_P(All, NonTemporalWeights,
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
