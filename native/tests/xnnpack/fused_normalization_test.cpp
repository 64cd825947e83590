// Layer and RMS norms in one step against the same in float64, with the kernels of every vector
// unit that this CPU has.
#include <gtest/gtest.h>

#include <cmath>

#include "backends/xnnpack/executor/fused_normalization.h"
#include "random_values.h"
#include "scratch_memory.h"

namespace edgewise::xnnpack {
namespace {

struct NormCase {
  const char* name;
  size_t rows, depth;
  bool is_centered, has_weight, has_bias;
  float offset = 0;  // of x
  bool in_place = false;
  int threads = 1;
};

class OwnNormalization : public testing::TestWithParam<NormCase> {};

TEST_P(OwnNormalization, MatchesFloat64) {
  const NormCase& test = GetParam();
  const size_t count = test.rows * test.depth;
  Floats x = random_floats(count, 1);
  for (float& item : x) item += test.offset;
  const Floats weight = random_floats(test.depth, 2), bias = random_floats(test.depth, 3);
  const std::vector<Shape> shapes(2, shape_of({test.rows, test.depth}));
  Graph graph;
  graph.values.resize(4);
  graph.values[2].data.bytes = std::as_bytes(std::span(weight));
  graph.values[3].data.bytes = std::as_bytes(std::span(bias));
  NormalizationNodes nodes;
  nodes.input = 0;
  nodes.output = 1;
  nodes.numbers = {.is_centered = test.is_centered,
                   .mean_factor = 1 / static_cast<float>(test.depth),
                   .mean_offset = 0.125f,
                   .square_factor = 1 / static_cast<float>(test.depth),
                   .epsilon = 1e-3f};
  if (test.has_weight) nodes.weight = 2;
  if (test.has_bias) nodes.bias = 3;

  std::vector<double> expected;
  for (size_t i = 0; i < test.rows; ++i) {
    const float* row = x.data() + i * test.depth;
    double mean = 0, square = 0;
    if (test.is_centered) {
      for (size_t j = 0; j < test.depth; ++j) mean += row[j] / static_cast<double>(test.depth);
      mean += 0.125;
    }
    for (size_t j = 0; j < test.depth; ++j) {
      square += (row[j] - mean) * (row[j] - mean) / static_cast<double>(test.depth);
    }
    for (size_t j = 0; j < test.depth; ++j) {
      double y = (row[j] - mean) / std::sqrt(square + 1e-3);
      if (test.has_weight) y *= double{weight[j]};
      if (test.has_bias) y += double{bias[j]};
      expected.push_back(y);
    }
  }

  for (const FloatKernels* kernels : all_float_kernels()) {
    SCOPED_TRACE(kernels->name);
    auto state = ProgramState::make(test.threads);
    ASSERT_TRUE(state.ok());
    auto step = FusedNormalization::make(graph, nodes, *kernels, **state);
    ASSERT_TRUE(step.ok());
    ASSERT_TRUE((*step)->reshape(shapes).ok());
    ScratchMemory scratch(**step, static_cast<size_t>(test.threads));
    Floats in = x, out(count);
    float* to = test.in_place ? in.data() : out.data();
    void* addresses[] = {in.data(), to, nullptr, nullptr};
    ASSERT_TRUE((*step)->set_pointers(addresses, scratch).ok());
    ASSERT_TRUE((*step)->run().ok());
    // What is subtracted is rounded, too: of an offset 2^-24 times its size.
    const double bound = 4e-6 + 4e-7 * test.offset;
    for (size_t k = 0; k < count; ++k) ASSERT_NEAR(to[k], expected[k], bound) << k;
  }
}
INSTANTIATE_TEST_SUITE_P(All, OwnNormalization,
                         testing::Values(NormCase{"Layer", 5, 768, true, true, true},
                                         NormCase{"OddDepth", 7, 77, true, true, true},
                                         NormCase{"Narrow", 9, 3, true, true, false},
                                         NormCase{"OneNumber", 3, 1, true, false, false},
                                         NormCase{"RootMeanSquare", 6, 100, false, true, false},
                                         NormCase{"NoWeight", 4, 33, false, false, true},
                                         NormCase{"Offset", 4, 512, true, true, true, 100},
                                         NormCase{"InPlace", 31, 65, true, true, true, 0, true},
                                         NormCase{"Threads", 300, 129, true, true, true, 0, true,
                                                  3}),
                         [](const auto& test) { return std::string(test.param.name); });

// A number that is none is in all of its row's results and in no other row's.
TEST(FusedNormalization, NanStaysInItsRow) {
  for (const FloatKernels* kernels : all_float_kernels()) {
    Floats x = random_floats(3 * 20, 1), out(3 * 20);
    x[25] = NAN;
    kernels->normalize({.is_centered = true,
                        .mean_factor = 0.05f,
                        .square_factor = 0.05f,
                        .rows = 3,
                        .depth = 20,
                        .in = x.data(),
                        .out = out.data()});
    for (size_t k = 0; k < out.size(); ++k) EXPECT_EQ(std::isnan(out[k]), k / 20 == 1) << k;
  }
}

}  // namespace
}  // namespace edgewise::xnnpack
