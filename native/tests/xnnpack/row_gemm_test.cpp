// Rows quantized at run time times weights of 4 and 8 bits: kernels against doubles, steps against
// XNNPACK.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

// First: it has the definitions of the payload's own header and more.
#include "payload_builder.h"

#include "backends/xnnpack/executor/fused_row_gemm.h"
#include "backends/xnnpack/payload.h"
#include "backends/xnnpack/read_graph.h"
#include "random_values.h"

namespace edgewise::xnnpack {
namespace {

using Node = fb::XNodeUnion;
using Type = fb::XNNDatatype;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// ---- kernels

#define SKIP_WITHOUT_KERNELS()                        \
  if (row_gemm_kernels(DataType::kQcint4) == nullptr) \
  GTEST_SKIP() << "XNNPACK's are used on this CPU"

bool takes(const GraphValue& filter) { return row_gemm_kernels(filter.type)->takes(filter); }

// What the CPU's kernels make of rows and a filter.
Floats products(const Floats& x, size_t rows, const GraphValue& filter, const Floats* bias,
                float min, float max) {
  const size_t columns = filter.shape[0], depth = filter.shape[1];
  const RowGemmKernels& kernels = *row_gemm_kernels(filter.type);
  std::vector<std::byte> a(kernels.rows_bytes(rows, depth));
  for (size_t i = 0; i < rows; ++i) {
    kernels.quantize(&x[i * depth], rows, depth, i, a.data());
  }
  Floats y[2];
  std::vector<std::byte> panel(kernels.panel_bytes(filter));
  for (const bool is_cached : {false, true}) {
    y[is_cached].assign(rows * columns + 1, 42);
    for (size_t first = 0; first < columns; first += kRowGemmColumns) {
      kernels.pack(filter, bias == nullptr ? nullptr : bias->data(), first, panel.data());
      kernels.multiply({.weights = filter.type,
                        .rows = rows,
                        .depth = depth,
                        .block = filter.block_size,
                        .a = a.data(),
                        .panel = panel.data(),
                        .columns = std::min(kRowGemmColumns, columns - first),
                        .c = y[is_cached].data() + first,
                        .c_stride = columns,
                        .min = min,
                        .max = max,
                        .is_cached = is_cached});
    }
    EXPECT_EQ(y[is_cached].back(), 42);
  }
  EXPECT_EQ(std::memcmp(y[0].data(), y[1].data(), y[0].size() * sizeof(float)), 0);
  return y[1];
}

// A filter [columns, depth] without data and scales. `block`: of qbint4.
GraphValue filter_of(DataType type, size_t columns, size_t depth, size_t block = 0) {
  GraphValue filter;
  filter.type = type;
  filter.shape = shape_of({columns, depth});
  filter.block_size = static_cast<uint32_t>(block);
  if (type != DataType::kQcint8) filter.zero_point = 8;
  return filter;
}

// Scales and weights that are random.
GraphValue random_filter(DataType type, size_t columns, size_t depth, size_t block,
                         std::vector<std::byte>* bytes) {
  GraphValue filter = filter_of(type, columns, depth, block);
  std::mt19937 engine(7);
  bytes->resize(columns * depth * bits_of(type) / 8);
  for (std::byte& byte : *bytes) byte = static_cast<std::byte>(engine() & 0xff);
  filter.data.bytes = *bytes;
  const auto scale = [&] { return static_cast<float>(1 + engine() % 255) / 512; };
  if (type == DataType::kQbint4) {
    for (size_t i = 0; i < columns * depth / block; ++i) {
      filter.block_scales.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(scale()) >> 16));
    }
  } else {
    for (size_t i = 0; i < columns; ++i) filter.channel_scales.push_back(scale());
  }
  return filter;
}

double weight_of(const GraphValue& filter, size_t column, size_t row) {
  const size_t index = column * filter.shape[1] + row;
  if (filter.type == DataType::kQcint8) {
    return std::to_integer<int8_t>(filter.data.bytes[index]) *
           double{filter.channel_scales[column]};
  }
  const auto pair = std::to_integer<int>(filter.data.bytes[index / 2]);
  const int nibble = (index % 2 == 0 ? pair & 15 : pair >> 4) - 8;
  return nibble * double{filter.type == DataType::kQbint4
                             ? from_bfloat16(filter.block_scales[index / filter.block_size])
                             : filter.channel_scales[column]};
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

void expect_products(const Floats& y, const Floats& x, size_t rows, const GraphValue& filter,
                     const Floats* bias, float min, float max) {
  const size_t columns = filter.shape[0], depth = filter.shape[1];
  for (size_t i = 0; i < rows; ++i) {
    const EagerRow row({&x[i * depth], depth});
    for (size_t j = 0; j < columns; ++j) {
      double sum = bias == nullptr ? 0 : (*bias)[j], most = std::abs(sum);
      for (size_t k = 0; k < depth; ++k) {
        const double product =
            double{row.scale} * row.steps_of(x[i * depth + k]) * weight_of(filter, j, k);
        sum += product;
        most += std::abs(product);
      }
      const double right = std::clamp<double>(sum, min, max);
      ASSERT_NEAR(y[i * columns + j], right, 1e-6 * most) << i << " " << j;
    }
  }
}

struct KernelCase {
  DataType type;
  size_t rows, depth, columns, block = 0;
  bool has_bias = true;
  float min = -kInfinity, max = kInfinity;
};

class RowGemmKernel : public testing::TestWithParam<KernelCase> {};

TEST_P(RowGemmKernel, IsTheProduct) {
  SKIP_WITHOUT_KERNELS();
  const KernelCase& c = GetParam();
  std::vector<std::byte> bytes;
  const GraphValue filter = random_filter(c.type, c.columns, c.depth, c.block, &bytes);
  if (!takes(filter)) GTEST_SKIP() << "XNNPACK's are used for these weights";
  const Floats some = random_floats(c.columns, 3), x = random_floats(c.rows * c.depth, 4);
  const Floats* bias = c.has_bias ? &some : nullptr;
  expect_products(products(x, c.rows, filter, bias, c.min, c.max), x, c.rows, filter, bias, c.min,
                  c.max);
}

constexpr auto kBlocks = DataType::kQbint4, kNibbles = DataType::kQcint4,
               kBytes = DataType::kQcint8;

INSTANTIATE_TEST_SUITE_P(
    All, RowGemmKernel,
    testing::Values(KernelCase{kBlocks, 1, 32, 1, 32}, KernelCase{kBlocks, 1, 1024, 64, 32},
                    KernelCase{kBlocks, 2, 64, 31, 64, false}, KernelCase{kBlocks, 3, 96, 33, 32},
                    KernelCase{kBlocks, 4, 256, 40, 128}, KernelCase{kBlocks, 2, 512, 33, 256},
                    KernelCase{kBlocks, 5, 64, 32, 32}, KernelCase{kBlocks, 6, 96, 70, 96},
                    KernelCase{kBlocks, 23, 320, 100, 32},
                    KernelCase{kBlocks, 1, 64, 37, 32, false},
                    KernelCase{kBlocks, 9, 64, 48, 32, true, 0, 3},
                    // Depths with and without a rest, down to a single pair; columns that need one
                    // vector, two, and several panels.
                    KernelCase{kNibbles, 1, 2, 1}, KernelCase{kNibbles, 1, 1024, 64},
                    KernelCase{kNibbles, 1, 1030, 16, 0, false}, KernelCase{kNibbles, 2, 10, 17},
                    KernelCase{kNibbles, 3, 64, 33}, KernelCase{kNibbles, 5, 100, 70, 0, false},
                    KernelCase{kNibbles, 12, 2050, 7}, KernelCase{kNibbles, 13, 30, 16},
                    KernelCase{kNibbles, 9, 64, 48, 0, true, 0, 3}, KernelCase{kBytes, 1, 1, 1},
                    KernelCase{kBytes, 1, 1024, 64}, KernelCase{kBytes, 1, 1029, 16, 0, false},
                    KernelCase{kBytes, 2, 13, 17}, KernelCase{kBytes, 3, 64, 33},
                    KernelCase{kBytes, 5, 101, 70, 0, false}, KernelCase{kBytes, 12, 2047, 7},
                    KernelCase{kBytes, 13, 31, 16}, KernelCase{kBytes, 9, 64, 48, 0, true, -1, 1},
                    // KleidiAI's depths, and columns that fill no group of it.
                    KernelCase{kNibbles, 1, 96, 37}, KernelCase{kNibbles, 17, 160, 61, 0, false},
                    KernelCase{kBytes, 1, 96, 1}, KernelCase{kBytes, 1, 160, 47, 0, true, -1, 1},
                    KernelCase{kBytes, 1, 32, 18, 0, false}, KernelCase{kBytes, 33, 160, 61}),
    [](const auto& test) {
      const KernelCase& c = test.param;
      return std::string(name_of(c.type)) + "_" + std::to_string(c.rows) + "x" +
             std::to_string(c.depth) + "x" + std::to_string(c.columns) +
             (c.block == 0 ? "" : "by" + std::to_string(c.block));
    });

// Tiles are of so many rows; each number is met by one or several of them.
TEST(RowGemmKernel, TakesAnyNumberOfRows) {
  SKIP_WITHOUT_KERNELS();
  for (const DataType type : {kBlocks, kNibbles, kBytes}) {
    for (const size_t columns : {16, 35}) {
      std::vector<std::byte> bytes;
      const GraphValue filter = random_filter(type, columns, 32, 32, &bytes);
      if (!takes(filter)) continue;
      for (size_t rows = 1; rows <= 40; ++rows) {
        SCOPED_TRACE(std::string(name_of(type)) + " " + std::to_string(rows));
        const Floats x = random_floats(rows * 32, static_cast<uint32_t>(rows));
        const Floats y = products(x, rows, filter, nullptr, -kInfinity, kInfinity);
        expect_products(y, x, rows, filter, nullptr, -kInfinity, kInfinity);
      }
    }
  }
}

// Sums of the largest products, with either sign of both factors: 32 bits are just enough.
TEST(RowGemmKernel, SumsOfTheDeepestFit) {
  SKIP_WITHOUT_KERNELS();
  constexpr size_t kDepth = 65536;
  struct Extreme {
    DataType type;
    uint8_t byte;
    int weight;
  };
  for (const Extreme& e : {Extreme{kNibbles, 0x00, -8}, Extreme{kNibbles, 0xff, 7},
                           Extreme{kBytes, 0x80, -128}, Extreme{kBytes, 0x7f, 127}}) {
    GraphValue filter = filter_of(e.type, 1, kDepth);
    if (!takes(filter)) continue;
    const std::vector<std::byte> bytes(kDepth * bits_of(e.type) / 8, std::byte{e.byte});
    filter.data.bytes = bytes;
    filter.channel_scales = {1};
    for (const float x : {1.0f, -1.0f}) {
      const Floats y = products(Floats(kDepth, x), 1, filter, nullptr, -kInfinity, kInfinity);
      const float right = x * static_cast<float>(e.weight) * kDepth;
      EXPECT_NEAR(y[0], right, 1e-6f * std::abs(right)) << name_of(e.type) << " " << x;
    }
  }
}

TEST(RowGemmKernel, LeavesWhatItHasNoFormFor) {
  SKIP_WITHOUT_KERNELS();
  const GraphValue cases[] = {
      filter_of(DataType::kFp32, 8, 64), filter_of(DataType::kQbint8, 8, 64, 32),
      filter_of(kNibbles, 8, 63),        filter_of(kNibbles, 8, 65538),
      filter_of(kNibbles, 8, 65568),     filter_of(kBytes, 8, 65568),
      filter_of(kBytes, 8, 65537),       filter_of(kBlocks, 8, 2 * 65568, 65568),
  };
  for (const GraphValue& filter : cases) {
#if !defined(__x86_64__)
    if (filter.type == kBlocks) continue;
#endif
    EXPECT_FALSE(takes(filter)) << name_of(filter.type) << filter.shape.text();
  }
}

TEST(RowGemmKernel, QuantizesAsPyTorchDoes) {
  SKIP_WITHOUT_KERNELS();
  // Each product is one number of the row, quantized: a one in its place, zeros elsewhere.
  constexpr size_t kDepth = 32;
  std::vector<std::byte> nibbles(kDepth * kDepth / 2, std::byte{0x88});
  for (size_t i = 0; i < kDepth; ++i) {
    nibbles[(i * kDepth + i) / 2] = i % 2 == 0 ? std::byte{0x89} : std::byte{0x98};
  }
  GraphValue filter = filter_of(kBlocks, kDepth, kDepth, kDepth);
  filter.data.bytes = nibbles;
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
      const Floats y = products(x, rows, filter, nullptr, -kInfinity, kInfinity);
      for (size_t i = 0; i < rows * kDepth; ++i) {
        EXPECT_NEAR(y[i] / eager.scale, eager.steps_of(x[i]), 1e-3) << i;
      }
    }
  }
}

// PyTorch's scale of such a row is NaN. A bound keeps NaN, too.
TEST(RowGemmKernel, OfRowsThatAreNotFiniteAreNan) {
  SKIP_WITHOUT_KERNELS();
  constexpr size_t kDepth = 96, kColumns = 35;
  const Floats odd[] = {
      {NAN}, {kInfinity}, {-kInfinity}, {-kInfinity, kInfinity}, {kInfinity, NAN}};
  for (const DataType type : {kBlocks, kNibbles, kBytes}) {
    std::vector<std::byte> bytes;
    const GraphValue filter = random_filter(type, kColumns, kDepth, 32, &bytes);
    if (!takes(filter)) continue;
    for (const size_t rows : {1, 2, 7}) {
      for (const Floats& some : odd) {
        const size_t row = rows / 2;
        Floats x = random_floats(rows * kDepth, 5);
        std::copy(some.begin(), some.end(), x.begin() + static_cast<ptrdiff_t>(row * kDepth + 41));
        const Floats y = products(x, rows, filter, nullptr, -1, 1);
        for (size_t i = 0; i < rows * kColumns; ++i) {
          ASSERT_EQ(std::isnan(y[i]), i / kColumns == row)
              << name_of(type) << " " << rows << " " << some[0] << " " << i;
        }
      }
    }
  }
}

// ---- steps

struct StepCase {
  const char* name;
  Type weights;
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
  const uint32_t p = b->internal({kMostRows, 96}, Type::qdint8);
  b->group_linear(q, y);
  b->bound(-1, 1);
  b->per_token(p, 1);
  b->unary(Node::XNNConvert, y, p);
  b->group_linear(p, z);
}

// A product with other weights.
void other_weights(PayloadBuilder* b, uint32_t /*x*/, uint32_t q) {
  b->channel_linear(q, b->output({kMostRows, 8}), Type::qcint8);
}

// Products that XNNPACK has to compute.
void transposed_product(PayloadBuilder* b, uint32_t x, uint32_t q) {
  const uint32_t depth = b->tensor(x).dims.back();
  const uint32_t filter =
      b->constant<int8_t>({depth, 8}, std::vector<int8_t>(8 * depth, 3), Type::qcint8);
  b->per_channel(filter, std::vector<float>(8, 0.01f), 1);
  b->linear(q, filter, kNoId, b->output({kMostRows, 8}), XNN_FLAG_TRANSPOSE_WEIGHTS);
}

class RowGemm : public testing::TestWithParam<StepCase> {};

std::vector<std::byte> payload_of(const StepCase& c, std::vector<uint32_t>* columns) {
  PayloadBuilder b;
  const uint32_t x = b.input({kMostRows, c.depth});
  const uint32_t q = b.internal({kMostRows, c.depth}, Type::qdint8);
  b.per_token(q, 1);
  b.unary(Node::XNNConvert, x, q);
  if (c.add != nullptr) c.add(&b, x, q);
  for (uint32_t count : c.columns) {
    const uint32_t bias = c.has_bias ? b.constant<float>({count}, random_floats(count, 8)) : kNoId;
    const uint32_t y = b.output({kMostRows, count});
    if (c.weights == Type::qbint4) {
      b.group_linear(q, y, bias, c.group);
    } else {
      b.channel_linear(q, y, c.weights, bias);
    }
  }
  for (uint32_t output : b.graph.output_ids) columns->push_back(b.tensor(output).dims.back());
  return b.bytes();
}

bool is_chosen(const std::vector<std::byte>& bytes) {
  auto payload = open_payload(bytes);
  if (!payload.ok()) return false;
  auto graph = read_graph(*payload, nullptr);
  return graph.ok() && row_gemm_nodes(*graph, Readers(*graph), 0).has_value();
}

bool takes(Type weights, size_t depth) {
  return weights == Type::qbint4 ||
         takes(filter_of(weights == Type::qcint8 ? kBytes : kNibbles, 8, depth));
}

TEST_P(RowGemm, IsNearXnnpacks) {
  SKIP_WITHOUT_KERNELS();
  const StepCase& c = GetParam();
  std::vector<uint32_t> columns;
  const auto payload = payload_of(c, &columns);
  // The same kernels for all that read the rows.
  const bool takes_others = c.add != other_weights || (takes(Type::qcint8, c.depth) &&
                                                       row_gemm_kernels(DataType::kQcint8) ==
                                                           row_gemm_kernels(DataType::kQbint4));
  EXPECT_EQ(is_chosen(payload), c.is_chosen && takes(c.weights, c.depth) && takes_others);
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
    All, RowGemm,
    testing::Values(
        StepCase{"One", Type::qbint4, {40}},
        StepCase{"Three", Type::qbint4, {64, 32, 32}, 64, 32, true, 3},
        StepCase{"OfUnequalSizes", Type::qbint4, {16, 400, 7}, 64, 32, false, 2},
        StepCase{"ManyPanels", Type::qbint4, {2000, 2000}, 256, 64, true, 2},
        StepCase{"ReaderInBetween", Type::qbint4, {16, 32}, 64, 32, false, 2, reader_in_between},
        StepCase{"Chain", Type::qbint4, {16}, 64, 32, false, 1, chain},
        StepCase{"BesideOtherWeights", Type::qbint4, {16}, 64, 32, false, 2, other_weights},
        StepCase{
            "BesideTransposed", Type::qbint4, {16}, 64, 32, false, 2, transposed_product, false},
        StepCase{"Nibbles", Type::qcint4, {40}, 70},
        StepCase{"NibblesOfWholeSteps", Type::qcint4, {40, 33}, 96, 0, true, 2},
        StepCase{"ThreeOfNibbles", Type::qcint4, {64, 33, 7}, 130, 0, true, 3},
        StepCase{"ManyPanelsOfNibbles", Type::qcint4, {2000, 1000}, 258, 0, true, 2},
        StepCase{"Bytes", Type::qcint8, {40}, 67},
        StepCase{"BytesOfWholeSteps", Type::qcint8, {40, 33}, 96, 0, true, 2},
        StepCase{"ThreeOfBytes", Type::qcint8, {64, 33, 7}, 131, 0, true, 3},
        StepCase{"ManyPanelsOfBytes", Type::qcint8, {2000, 1000}, 129, 0, true, 2},
        StepCase{"BytesBesideTransposed",
                 Type::qcint8,
                 {16},
                 64,
                 0,
                 false,
                 2,
                 transposed_product,
                 false}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace edgewise::xnnpack
