// Attention in one step against the same in float64, with the kernels of every vector unit that
// this CPU has.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "backends/xnnpack/executor/fused_attention.h"
#include "random_values.h"
#include "scratch_memory.h"

namespace edgewise::xnnpack {
namespace {

using Doubles = std::vector<double>;

struct AttentionCase {
  const char* name;
  size_t batch, heads, tokens, key_tokens, depth;
  float size = 1;  // of queries and keys
  int threads = 1;
};
class OwnAttention : public testing::TestWithParam<AttentionCase> {};

TEST_P(OwnAttention, MatchesFloat64) {
  const AttentionCase& test = GetParam();
  // Queries have their tokens first, the others their batch.
  const std::vector<Shape> shapes = {
      shape_of({test.tokens, test.batch, test.heads, test.depth}),
      shape_of({test.batch, test.key_tokens, test.heads, test.depth}),
      shape_of({test.batch, test.key_tokens, test.heads, test.depth}),
      shape_of({test.batch, test.tokens, test.heads, test.depth})};
  AttentionNodes nodes;
  nodes.queries = {.value = 0, .batch_axis = 1, .head_axis = 2, .token_axis = 0};
  nodes.keys = {.value = 1, .batch_axis = 0, .head_axis = 2, .token_axis = 1};
  nodes.values = {.value = 2, .batch_axis = 0, .head_axis = 2, .token_axis = 1};
  nodes.output = {.value = 3, .batch_axis = 0, .head_axis = 2, .token_axis = 1};
  Floats queries = random_floats(shapes[0].elements(), 1);
  Floats keys = random_floats(shapes[1].elements(), 2);
  Floats values = random_floats(shapes[2].elements(), 3);
  for (float& x : queries) x *= test.size;

  Doubles expected;
  for (size_t b = 0; b < test.batch; ++b) {
    for (size_t t = 0; t < test.tokens; ++t) {
      for (size_t h = 0; h < test.heads; ++h) {
        Doubles scores(test.key_tokens);
        double most = -INFINITY, sum = 0;
        for (size_t s = 0; s < test.key_tokens; ++s) {
          for (size_t d = 0; d < test.depth; ++d) {
            const size_t query = ((t * test.batch + b) * test.heads + h) * test.depth + d;
            const size_t key = ((b * test.key_tokens + s) * test.heads + h) * test.depth + d;
            scores[s] += double{queries[query]} * double{keys[key]};
          }
          most = std::max(most, scores[s]);
        }
        for (double& score : scores) sum += score = std::exp(score - most);
        for (size_t d = 0; d < test.depth; ++d) {
          double mixed = 0;
          for (size_t s = 0; s < test.key_tokens; ++s) {
            const size_t value = ((b * test.key_tokens + s) * test.heads + h) * test.depth + d;
            mixed += scores[s] / sum * double{values[value]};
          }
          expected.push_back(mixed);
        }
      }
    }
  }

  for (const FloatKernels* kernels : all_float_kernels()) {
    SCOPED_TRACE(kernels->name);
    if (test.depth % kernels->columns != 0) continue;
    auto state = ProgramState::make(test.threads);
    ASSERT_TRUE(state.ok());
    auto step = FusedAttention::make(nodes, *kernels, **state);
    ASSERT_TRUE(step.ok());
    ASSERT_TRUE((*step)->can_take(shapes));
    ASSERT_TRUE((*step)->reshape(shapes).ok());
    ScratchMemory scratch(**step, static_cast<size_t>(test.threads));
    Floats output(expected.size());
    void* addresses[] = {queries.data(), keys.data(), values.data(), output.data()};
    ASSERT_TRUE((*step)->set_pointers(addresses, scratch).ok());
    ASSERT_TRUE((*step)->run().ok());
    EXPECT_TRUE(scratch.is_kept());
    // A score of 30 is within 30 * 2^-24, or some roundings more.
    for (size_t k = 0; k < output.size(); ++k) ASSERT_NEAR(output[k], expected[k], 1e-5) << k;
  }
}
INSTANTIATE_TEST_SUITE_P(All, OwnAttention,
                         testing::Values(AttentionCase{"OneToken", 1, 1, 1, 1, 32},
                                         AttentionCase{"Small", 1, 1, 5, 7, 32},
                                         AttentionCase{"Batch", 3, 2, 9, 20, 32},
                                         AttentionCase{"ManyKeys", 1, 2, 3, 200, 64},
                                         AttentionCase{"ManyQueries", 1, 2, 150, 203, 64},
                                         AttentionCase{"Peaked", 1, 2, 17, 33, 64, 4},
                                         AttentionCase{"OddHeadsOfThreads", 1, 3, 50, 40, 64, 1, 2},
                                         AttentionCase{"Threads", 2, 4, 31, 31, 32, 1, 3}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(FloatKernels, Exponentials) {
  for (const FloatKernels* kernels : all_float_kernels()) {
    for (size_t columns : {1, 3, 16, 37}) {
      Floats x = random_floats(columns, 5);
      for (float& item : x) item *= 20;
      x[0] = -1000;  // underflows
      Floats got = x;
      float sum;
      kernels->exponentials(got.data(), columns, 1, columns, 0.5f, &sum);
      const double most = *std::max_element(x.begin(), x.end());
      double total = 0;
      for (size_t k = 0; k < columns; ++k) {
        const double power = 0.5 * (x[k] - most);
        const double right = std::exp(power);
        // The power is rounded, too.
        EXPECT_NEAR(got[k], right, 1.2e-7 * (2 - power) * right + 1e-37)
            << kernels->name << " " << x[k];
        total += right;
      }
      EXPECT_NEAR(sum, total, 1e-6 * total);
    }
  }
}

}  // namespace
}  // namespace edgewise::xnnpack
