// A GEMM for each matrix of a batch against float64, with the kernels of every vector unit that
// this CPU has.
#include "backends/xnnpack/executor/fused_batch_gemm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "random_values.h"
#include "scratch_memory.h"

namespace edgewise::xnnpack {
namespace {

struct BatchGemmCase {
  const char* name;
  size_t batch, heads, rows, depth, columns;
  bool is_transposed = false;
  int threads = 1;
};
class BatchGemm : public testing::TestWithParam<BatchGemmCase> {};

TEST_P(BatchGemm, MatchesFloat64) {
  const BatchGemmCase& test = GetParam();
  const std::vector<Shape> shapes = {
      shape_of({test.batch, test.heads, test.rows, test.depth}),
      test.is_transposed ? shape_of({test.batch, test.heads, test.columns, test.depth})
                         : shape_of({test.batch, test.heads, test.depth, test.columns}),
      shape_of({test.batch, test.heads, test.rows, test.columns})};
  GraphNode node;
  node.kind = NodeKind::kBatchMatrixMultiply;
  node.inputs = {0, 1};
  node.outputs = {2};
  if (test.is_transposed) node.flags = XNN_FLAG_TRANSPOSE_B;
  Floats left = random_floats(shapes[0].elements(), 1);
  Floats right = random_floats(shapes[1].elements(), 2);

  const size_t row_step = test.is_transposed ? 1 : test.columns;
  const size_t column_step = test.is_transposed ? test.depth : 1;
  std::vector<double> expected, magnitudes;
  for (size_t matrix = 0; matrix < test.batch * test.heads; ++matrix) {
    const float* b = right.data() + matrix * test.depth * test.columns;
    for (size_t i = 0; i < test.rows; ++i) {
      const float* a = left.data() + (matrix * test.rows + i) * test.depth;
      for (size_t j = 0; j < test.columns; ++j) {
        double sum = 0, magnitude = 0;
        for (size_t p = 0; p < test.depth; ++p) {
          const double term = double{a[p]} * double{b[p * row_step + j * column_step]};
          sum += term;
          magnitude += std::abs(term);
        }
        expected.push_back(sum);
        magnitudes.push_back(magnitude);
      }
    }
  }

  for (const FloatKernels* kernels : all_float_kernels()) {
    SCOPED_TRACE(kernels->name);
    auto state = ProgramState::make(test.threads);
    ASSERT_TRUE(state.ok());
    auto step = FusedBatchGemm::make(node, *kernels, **state);
    ASSERT_TRUE(step.ok());
    ASSERT_TRUE((*step)->can_take(shapes));
    ASSERT_TRUE((*step)->reshape(shapes).ok());
    ScratchMemory scratch(**step, static_cast<size_t>(test.threads));
    // What lies behind the results stays as it is.
    Floats output(expected.size() + 64, 7.0f);
    void* addresses[] = {left.data(), right.data(), output.data()};
    ASSERT_TRUE((*step)->set_pointers(addresses, scratch).ok());
    ASSERT_TRUE((*step)->run().ok());
    EXPECT_TRUE(scratch.is_kept());
    for (size_t k = 0; k < expected.size(); ++k) {
      ASSERT_NEAR(output[k], expected[k], 2e-7 * std::sqrt(test.depth) * magnitudes[k]) << k;
    }
    for (size_t k = expected.size(); k < output.size(); ++k) ASSERT_EQ(output[k], 7.0f);
  }
}
INSTANTIATE_TEST_SUITE_P(All, BatchGemm,
                         testing::Values(BatchGemmCase{"OneByOne", 1, 1, 1, 1, 1},
                                         BatchGemmCase{"OneRow", 2, 1, 1, 64, 40},
                                         BatchGemmCase{"OneColumn", 1, 2, 19, 33, 1},
                                         BatchGemmCase{"WholeVectors", 1, 2, 28, 64, 64},
                                         BatchGemmCase{"Scores", 2, 3, 31, 32, 37, true},
                                         BatchGemmCase{"Mixing", 2, 3, 31, 37, 32},
                                         BatchGemmCase{"Parts", 1, 3, 50, 40, 29, false, 2},
                                         BatchGemmCase{"PartsTransposed", 1, 1, 50, 40, 29, true,
                                                       4},
                                         BatchGemmCase{"Threads", 2, 4, 31, 31, 32, true, 3},
                                         BatchGemmCase{"NoRow", 1, 2, 0, 8, 8}),
                         [](const auto& test) { return std::string(test.param.name); });

struct TakesCase {
  const char* name;
  Shape left, right, out;
  bool takes;
};
class BatchGemmTakes : public testing::TestWithParam<TakesCase> {};

// What repeats matrices of a factor, or has large ones, is left to XNNPACK.
TEST_P(BatchGemmTakes, SmallMatricesAsManyInBoth) {
  const TakesCase& test = GetParam();
  GraphNode node;
  node.kind = NodeKind::kBatchMatrixMultiply;
  node.inputs = {0, 1};
  node.outputs = {2};
  auto state = ProgramState::make(1);
  ASSERT_TRUE(state.ok());
  for (const FloatKernels* kernels : all_float_kernels()) {
    auto step = FusedBatchGemm::make(node, *kernels, **state);
    ASSERT_TRUE(step.ok());
    EXPECT_EQ((*step)->can_take({test.left, test.right, test.out}), test.takes);
  }
}
INSTANTIATE_TEST_SUITE_P(
    All, BatchGemmTakes,
    testing::Values(
        TakesCase{"Matrices", shape_of({8, 4}), shape_of({4, 8}), shape_of({8, 8}), true},
        TakesCase{"Batch", shape_of({2, 3, 8, 4}), shape_of({2, 3, 4, 8}), shape_of({2, 3, 8, 8}),
                  true},
        TakesCase{"OneForAll", shape_of({2, 3, 8, 4}), shape_of({1, 3, 4, 8}),
                  shape_of({2, 3, 8, 8}), false},
        TakesCase{"OfLowerRank", shape_of({2, 8, 4}), shape_of({4, 8}), shape_of({2, 8, 8}), false},
        TakesCase{"Large", shape_of({8, 1024}), shape_of({1024, 512}), shape_of({8, 512}), false}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace edgewise::xnnpack
