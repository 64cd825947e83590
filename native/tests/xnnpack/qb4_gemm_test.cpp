// Rows quantized at run time times 4-bit weights in blocks: kernels against doubles, steps against
// XNNPACK.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <span>

// First: it has the definitions of the payload's own header and more.
#include "payload_builder.h"

#include "backends/xnnpack/executor/fused_qb4_gemm.h"
#include "backends/xnnpack/payload.h"
#include "backends/xnnpack/read_graph.h"
#include "random_values.h"

namespace edgewise::xnnpack {
namespace {

using Node = fb::XNodeUnion;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// ---- kernels

// What the CPU's kernels make of rows and a filter [columns, depth] in groups.
Floats products(const Qb4Kernels& kernels, const Floats& x, size_t rows, const GraphValue& filter,
                const Floats* bias, float min, float max) {
  const size_t columns = filter.shape[0], depth = filter.shape[1], block = filter.block_size;
  std::vector<std::byte> a(kernels.rows_bytes(rows, depth));
  for (size_t i = 0; i < rows; ++i) {
    kernels.quantize(&x[i * depth], rows, depth, i, a.data());
  }
  Floats y(rows * columns + 1, 42);
  std::vector<std::byte> panel(kernels.panel_bytes(depth, block));
  for (size_t first = 0; first < columns; first += kQb4Columns) {
    kernels.pack(filter, bias == nullptr ? nullptr : bias->data(), first, panel.data());
    kernels.multiply({.rows = rows,
                      .depth = depth,
                      .block = block,
                      .a = a.data(),
                      .panel = panel.data(),
                      .columns = std::min(kQb4Columns, columns - first),
                      .c = y.data() + first,
                      .c_stride = columns,
                      .min = min,
                      .max = max});
  }
  EXPECT_EQ(y.back(), 42);
  return y;
}

GraphValue filter_of(size_t columns, size_t depth, size_t block,
                     const std::vector<std::byte>& nibbles) {
  GraphValue filter;
  filter.shape = shape_of({columns, depth});
  filter.data.bytes = nibbles;
  filter.block_size = static_cast<uint32_t>(block);
  return filter;
}

// As torchao's int8_asymm_per_token does it.
struct EagerRow {
  float scale;
  int zero_point;

  explicit EagerRow(std::span<const float> x) {
    const float min = std::min(0.0f, *std::ranges::min_element(x));
    const float max = std::max(0.0f, *std::ranges::max_element(x));
    scale = min == max ? 1 : (max - min) / 255;
    zero_point = std::clamp(-128 - static_cast<int>(std::nearbyint(min / scale)), -128, 127);
  }
  // In steps from the zero point.
  int steps_of(float x) const {
    const int q = static_cast<int>(std::nearbyint(x * (1 / scale))) + zero_point;
    return std::clamp(q, -128, 127) - zero_point;
  }
};

struct KernelCase {
  size_t rows, depth, columns, block;
  bool has_bias = true;
  float min = -kInfinity, max = kInfinity;
};

class Qb4Kernel : public testing::TestWithParam<KernelCase> {};

std::byte random_byte(std::mt19937& engine) { return static_cast<std::byte>(engine() & 0xff); }

TEST_P(Qb4Kernel, IsTheProduct) {
  const Qb4Kernels* kernels = qb4_kernels();
  if (kernels == nullptr) GTEST_SKIP() << "XNNPACK's are used on this CPU";
  const KernelCase& c = GetParam();
  std::mt19937 engine(7);
  std::vector<std::byte> nibbles(c.columns * c.depth / 2);
  for (std::byte& pair : nibbles) pair = random_byte(engine);
  GraphValue filter = filter_of(c.columns, c.depth, c.block, nibbles);
  for (size_t i = 0; i < c.columns * c.depth / c.block; ++i) {
    const auto scale = static_cast<float>(1 + engine() % 255) / 512;
    filter.block_scales.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(scale) >> 16));
  }
  const Floats bias = random_floats(c.columns, 3), x = random_floats(c.rows * c.depth, 4);
  const Floats y =
      products(*kernels, x, c.rows, filter, c.has_bias ? &bias : nullptr, c.min, c.max);
  for (size_t i = 0; i < c.rows; ++i) {
    const EagerRow row({&x[i * c.depth], c.depth});
    for (size_t j = 0; j < c.columns; ++j) {
      double sum = c.has_bias ? bias[j] : 0, most = std::abs(sum);
      for (size_t k = 0; k < c.depth; ++k) {
        const auto pair = std::to_integer<int>(nibbles[(j * c.depth + k) / 2]);
        const int nibble = (k % 2 == 0 ? pair & 15 : pair >> 4) - 8;
        const double product = double{row.scale} * row.steps_of(x[i * c.depth + k]) * nibble *
                               from_bfloat16(filter.block_scales[(j * c.depth + k) / c.block]);
        sum += product;
        most += std::abs(product);
      }
      const double right = std::clamp<double>(sum, c.min, c.max);
      ASSERT_NEAR(y[i * c.columns + j], right, 1e-6 * most) << i << " " << j;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Qb4Kernel,
                         testing::Values(KernelCase{1, 32, 1, 32}, KernelCase{1, 1024, 64, 32},
                                         KernelCase{2, 64, 31, 64, false},
                                         KernelCase{3, 96, 33, 32}, KernelCase{4, 256, 40, 128},
                                         KernelCase{2, 512, 33, 256}, KernelCase{5, 64, 32, 32},
                                         KernelCase{6, 96, 70, 96}, KernelCase{23, 320, 100, 32},
                                         KernelCase{1, 64, 37, 32, false},
                                         KernelCase{9, 64, 48, 32, true, 0, 3}),
                         [](const auto& test) {
                           return std::to_string(test.param.rows) + "x" +
                                  std::to_string(test.param.depth) + "x" +
                                  std::to_string(test.param.columns) + "by" +
                                  std::to_string(test.param.block);
                         });

TEST(Qb4Kernel, QuantizesAsPyTorchDoes) {
  const Qb4Kernels* kernels = qb4_kernels();
  if (kernels == nullptr) GTEST_SKIP() << "XNNPACK's are used on this CPU";
  // Each product is one number of the row, quantized: a one in its place, zeros elsewhere.
  constexpr size_t kDepth = 32;
  std::vector<std::byte> nibbles(kDepth * kDepth / 2, std::byte{0x88});
  for (size_t i = 0; i < kDepth; ++i) {
    nibbles[(i * kDepth + i) / 2] = i % 2 == 0 ? std::byte{0x89} : std::byte{0x98};
  }
  GraphValue filter = filter_of(kDepth, kDepth, kDepth, nibbles);
  filter.block_scales.assign(kDepth, 0x3f80);  // 1
  struct RowCase {
    const char* name;
    std::vector<float> x;  // and zeros
  };
  const RowCase cases[] = {
      {"zeros", {}},
      {"no negative", {0, 255, 1, 2, 3, 4, 5, 0.5f, 1.5f, 2.5f}},
      {"no positive", {0, -255, -1, -2, -3, -4, -5, -0.5f, -1.5f, -2.5f}},
      // 1 / scale is a little less than 127.5.
      {"symmetric", {-1, 1, 0, 0.25f, -0.25f, 0.5f, -0.5f, 0.75f}},
      {"zero point between two numbers", {-1.5f, 253.5f, 1, 3, 0.5f, 1.5f, -0.5f}},
      {"no zero", {2, 3, 4, 5, 6, 7, 8, 10.2f}},
      {"huge", {3e37f, -1e38f, 1e30f}},
  };
  for (const RowCase& c : cases) {
    SCOPED_TRACE(c.name);
    Floats row = c.x;
    row.resize(kDepth, 0);
    const EagerRow eager(row);
    for (const size_t rows : {1, 5}) {
      Floats x;
      for (size_t i = 0; i < rows; ++i) x.insert(x.end(), row.begin(), row.end());
      const Floats y = products(*kernels, x, rows, filter, nullptr, -kInfinity, kInfinity);
      for (size_t i = 0; i < rows * kDepth; ++i) {
        EXPECT_NEAR(y[i] / eager.scale, eager.steps_of(x[i]), 1e-3) << i;
      }
    }
  }
}

// ---- steps

struct StepCase {
  const char* name;
  std::vector<uint32_t> columns;  // of each product
  uint32_t depth = 64, group = 32;
  bool has_bias = false;
  int threads = 1;
  // What else there is of q, the input quantized.
  void (*add)(PayloadBuilder* b, uint32_t x, uint32_t q) = nullptr;
  bool is_chosen = true;
};

constexpr uint32_t kMostRows = 40;

// The first product is read before the others are computed.
void reader_in_between(PayloadBuilder* b, uint32_t /*x*/, uint32_t q) {
  const uint32_t y = b->internal({kMostRows, 24});
  b->group_linear(q, y);
  b->unary(Node::XNNTanh, y, b->output({kMostRows, 24}));
}

// What is quantized from a result of the same input.
void chain(PayloadBuilder* b, uint32_t /*x*/, uint32_t q) {
  const uint32_t y = b->internal({kMostRows, 96}), z = b->output({kMostRows, 8});
  const uint32_t p = b->internal({kMostRows, 96}, fb::XNNDatatype::qdint8);
  b->group_linear(q, y);
  b->bound(-1, 1);
  b->per_token(p, 1);
  b->unary(Node::XNNConvert, y, p);
  b->group_linear(p, z);
}

// A product with 8-bit weights, which XNNPACK has to compute.
void other_product(PayloadBuilder* b, uint32_t x, uint32_t q) {
  const uint32_t depth = b->tensor(x).dims.back();
  const uint32_t filter =
      b->constant<int8_t>({8, depth}, std::vector<int8_t>(8 * depth, 3), fb::XNNDatatype::qcint8);
  b->per_channel(filter, std::vector<float>(8, 0.01f), 0);
  b->linear(q, filter, kNoId, b->output({kMostRows, 8}));
}

class Qb4Gemm : public testing::TestWithParam<StepCase> {};

std::vector<std::byte> payload_of(const StepCase& c, std::vector<uint32_t>* columns) {
  PayloadBuilder b;
  const uint32_t x = b.input({kMostRows, c.depth});
  const uint32_t q = b.internal({kMostRows, c.depth}, fb::XNNDatatype::qdint8);
  b.per_token(q, 1);
  b.unary(Node::XNNConvert, x, q);
  if (c.add != nullptr) c.add(&b, x, q);
  for (uint32_t count : c.columns) {
    const uint32_t bias = c.has_bias ? b.constant<float>({count}, random_floats(count, 8)) : kNoId;
    b.group_linear(q, b.output({kMostRows, count}), bias, c.group);
  }
  for (uint32_t output : b.graph.output_ids) columns->push_back(b.tensor(output).dims.back());
  return b.bytes();
}

bool is_chosen(const std::vector<std::byte>& bytes) {
  auto payload = open_payload(bytes);
  if (!payload.ok()) return false;
  auto graph = read_graph(*payload, nullptr);
  return graph.ok() && qb4_nodes(*graph, Readers(*graph), 0, *qb4_kernels()).has_value();
}

TEST_P(Qb4Gemm, IsNearXnnpacks) {
  if (qb4_kernels() == nullptr) GTEST_SKIP() << "XNNPACK's are used on this CPU";
  const StepCase& c = GetParam();
  std::vector<uint32_t> columns;
  const auto payload = payload_of(c, &columns);
  EXPECT_EQ(is_chosen(payload), c.is_chosen);
  auto ours = make_delegate(payload, nullptr, nullptr, c.threads);
  auto theirs = make_delegate(payload, nullptr, nullptr, c.threads, false);
  ASSERT_TRUE(ours.ok() && theirs.ok()) << ours.status().message();
  for (const int64_t rows : {1, 7, 40, 1, 2}) {
    HostTensor x(ScalarType::kFloat, {rows, c.depth});
    x.fill(random_floats(static_cast<size_t>(rows) * c.depth, static_cast<uint32_t>(rows)));
    std::vector<Floats> results[2];
    for (const bool own : {false, true}) {
      std::vector<HostTensor> outs;
      for (uint32_t count : columns) {
        outs.emplace_back(ScalarType::kFloat, std::vector<int64_t>{rows, count});
      }
      std::vector<HostTensor*> all = {&x};
      for (HostTensor& out : outs) all.push_back(&out);
      const Status status = run(own ? **ours : **theirs, all);
      ASSERT_TRUE(status.ok()) << status.message();
      for (HostTensor& out : outs) results[own].push_back(out.read<float>());
    }
    for (size_t i = 0; i < columns.size(); ++i) {
      ASSERT_EQ(results[0][i].size(), results[1][i].size());
      for (size_t j = 0; j < results[0][i].size(); ++j) {
        // Sums of some tens; of a chain a step of 8 bits may be another one.
        const float most = c.add == chain && i == 0 ? 0.04f : 1e-4f;
        ASSERT_NEAR(results[0][i][j], results[1][i][j], most) << rows << " " << i << " " << j;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, Qb4Gemm,
    testing::Values(StepCase{"One", {40}}, StepCase{"Three", {64, 32, 32}, 64, 32, true, 3},
                    StepCase{"OfUnequalSizes", {16, 400, 7}, 64, 32, false, 2},
                    StepCase{"ManyPanels", {2000, 1000}, 128, 64, true, 2},
                    StepCase{"ReaderInBetween", {16, 32}, 64, 32, false, 2, reader_in_between},
                    StepCase{"Chain", {16}, 64, 32, false, 1, chain},
                    StepCase{"BesideAnother", {16}, 64, 32, false, 2, other_product, false}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace edgewise::xnnpack
