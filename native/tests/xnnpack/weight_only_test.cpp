// Floats times weights of 4 and 8 bits, which stay integers, and XNNPACK's kernels for the same
// file: against doubles.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

// First: it has the definitions of the payload's own header and more.
#include "payload_builder.h"

#include "backends/xnnpack/dequantize_weights.h"
#include "backends/xnnpack/executor/kernel_table.h"
#include "backends/xnnpack/payload.h"
#include "backends/xnnpack/read_graph.h"
#include "random_values.h"

namespace edgewise::xnnpack {
namespace {

using Node = fb::XNodeUnion;
using Type = fb::XNNDatatype;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr uint32_t kMostRows = 40;

struct WeightOnlyCase {
  const char* name;
  Type weights;
  uint32_t depth, columns;
  uint32_t group = 0;
  bool has_bias = true;
  bool has_residual = false;
  float min = -kInfinity, max = kInfinity;
  int threads = 1;
};

// Bytes with a scale for each group.
void group_linear_of_bytes(PayloadBuilder* b, const WeightOnlyCase& c, uint32_t in, uint32_t out,
                           uint32_t bias) {
  std::mt19937 engine(c.depth);
  std::vector<int8_t> weights(size_t{c.columns} * c.depth);
  for (int8_t& weight : weights) weight = static_cast<int8_t>(engine());
  fb::PerChannelGroupQuantT scales;
  for (uint32_t i = 0; i < c.columns * c.depth / c.group; ++i) {
    scales.scale.push_back(static_cast<float>(1 + engine() % 255) / 8192);
  }
  scales.channel_dim = 0;
  scales.group_size = static_cast<int32_t>(c.group);
  const uint32_t filter = b->constant<int8_t>({c.columns, c.depth}, weights, c.weights);
  b->quantized(filter).quant_params.Set(scales);
  b->linear(in, filter, bias, out);
}

std::vector<std::byte> payload_of(const WeightOnlyCase& c, const Floats& bias) {
  PayloadBuilder b;
  const Dims dims = {kMostRows, c.columns};
  const uint32_t x = b.input({kMostRows, c.depth});
  const uint32_t residual = c.has_residual ? b.input(dims) : kNoId;
  const uint32_t y = c.has_residual ? b.internal(dims) : b.output(dims);
  const uint32_t bias_id = c.has_bias ? b.constant<float>({c.columns}, bias) : kNoId;
  if (c.weights == Type::qbint8) {
    group_linear_of_bytes(&b, c, x, y, bias_id);
  } else if (c.weights == Type::qbint4) {
    b.group_linear(x, y, bias_id, c.group);
  } else {
    b.channel_linear(x, y, c.weights, bias_id);
  }
  if (c.has_residual) b.binary(Node::XNNAdd, residual, y, b.output(dims));
  if (c.max < kInfinity) b.bound(c.min, c.max);
  return b.bytes();
}

// Its only filter, as floats.
Floats dequantized_filter(const Graph& graph) {
  GraphValue twin = graph.values[graph.nodes[0].inputs[1]];
  if (!twin.is_converted()) twin.stored = std::exchange(twin.type, DataType::kFp32);
  const auto block = dequantized(twin);
  const auto* floats = reinterpret_cast<const float*>(block->data());
  return Floats(floats, floats + twin.shape.elements());
}

class WeightOnly : public testing::TestWithParam<WeightOnlyCase> {};

TEST_P(WeightOnly, IsTheProduct) {
  const WeightOnlyCase& c = GetParam();
  const Floats bias = random_floats(c.columns, 3);
  const auto bytes = payload_of(c, bias);
  auto payload = open_payload(bytes);
  ASSERT_TRUE(payload.ok()) << payload.status().message();
  auto graph = read_graph(*payload, nullptr);
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  dequantize_weights(&*graph);
  if (const FloatKernels* kernels = float_kernels(); kernels != nullptr) {
    const auto choice = choose_kernels(*graph, graph->serialized_shapes(), kernels);
    ASSERT_EQ(choice.fusions.size(), 1);
    EXPECT_EQ(choice.fusions[0].nodes.size(), graph->nodes.size());
    EXPECT_TRUE(choice.refused[0].empty()) << choice.refused[0][0].rule;
  }
  const Floats weights = dequantized_filter(*graph);
  // Where XNNPACK has kernels, files have biases divided by the weights' scales.
  const GraphValue& filter = graph->values[graph->nodes[0].inputs[1]];
  const auto bias_of = [&](size_t column) {
    if (!c.has_bias) return 0.0;
    return filter.is_converted() ? bias[column]
                                 : double{bias[column]} * filter.channel_scales[column];
  };
  auto ours = make_delegate(bytes, nullptr, nullptr, c.threads);
  auto xnnpacks = make_delegate(bytes, nullptr, nullptr, c.threads, false);
  ASSERT_TRUE(ours.ok() && xnnpacks.ok()) << ours.status().message();
  for (const uint32_t rows : {1, 2, 3, 4, 5, 13, 40, 1}) {
    HostTensor x(ScalarType::kFloat, {rows, c.depth}),
        residual(ScalarType::kFloat, {rows, c.columns}), y(ScalarType::kFloat, {rows, c.columns});
    const Floats a = random_floats(size_t{rows} * c.depth, rows);
    const Floats added = random_floats(size_t{rows} * c.columns, rows + 1);
    x.fill(a);
    residual.fill(added);
    std::vector<HostTensor*> all = {&x};
    if (c.has_residual) all.push_back(&residual);
    all.push_back(&y);
    for (const auto* delegate : {&ours, &xnnpacks}) {
      const Status status = run(***delegate, all);
      ASSERT_TRUE(status.ok()) << status.message();
      const Floats results = y.read<float>();
      for (size_t i = 0; i < rows; ++i) {
        for (size_t j = 0; j < c.columns; ++j) {
          double sum = bias_of(j);
          if (c.has_residual) sum += added[i * c.columns + j];
          double most = std::abs(sum);
          for (size_t k = 0; k < c.depth; ++k) {
            const double product = double{a[i * c.depth + k]} * weights[j * c.depth + k];
            sum += product;
            most += std::abs(product);
          }
          const double right = std::clamp<double>(sum, c.min, c.max);
          ASSERT_NEAR(results[i * c.columns + j], right, 1e-6 * most)
              << (delegate == &ours) << " " << rows << " " << i << " " << j;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, WeightOnly,
    testing::Values(WeightOnlyCase{"Groups", Type::qbint4, 64, 40, 32},
                    WeightOnlyCase{"OneColumn", Type::qbint4, 32, 1, 32, false},
                    WeightOnlyCase{"LargeGroups", Type::qbint4, 512, 33, 256, true, true},
                    // Parts of a panel that end within a group.
                    WeightOnlyCase{"Deep", Type::qbint4, 4800, 17, 96, false, true, -1, 1},
                    WeightOnlyCase{"ManyPanels", Type::qbint4, 256, 700, 64, true, false, 0, 3, 3},
                    WeightOnlyCase{"GroupsOfBytes", Type::qbint8, 96, 35, 32, true, true},
                    WeightOnlyCase{"DeepGroupsOfBytes", Type::qbint8, 2080, 16, 32},
                    WeightOnlyCase{"Nibbles", Type::qcint4, 70, 40},
                    WeightOnlyCase{"NibblesOfTwo", Type::qcint4, 2, 9, 0, false},
                    WeightOnlyCase{"DeepNibbles", Type::qcint4, 2050, 65, 0, true, true, -2, 2, 2},
                    WeightOnlyCase{"Bytes", Type::qcint8, 67, 40},
                    WeightOnlyCase{"OneByte", Type::qcint8, 1, 3},
                    WeightOnlyCase{"DeepBytes", Type::qcint8, 2051, 33, 0, false, true, 0, 1, 2},
                    WeightOnlyCase{"ManyPanelsOfBytes", Type::qcint8, 131, 1000, 0, true, false,
                                   -kInfinity, kInfinity, 3}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace edgewise::xnnpack
