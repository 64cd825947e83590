// Attention in one step against the same in float64, with the kernels of every vector unit that
// this CPU has.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/xnnpack/executor/fused_attention.h"
#include "random_values.h"
#include "scratch_memory.h"

namespace edgewise::xnnpack {
namespace {

using Doubles = std::vector<double>;

// What is added to scores, and whether it is a constant.
enum class Mask { kNone, kRandom, kCausal, kPadding, kWindow, kHidesAll, kByHead };

struct AttentionCase {
  const char* name;
  size_t batch, heads, tokens, key_tokens, depth;
  float size = 1;  // of queries and keys
  int threads = 1;
  Mask mask = Mask::kNone;
  bool is_constant = false;
};

Shape mask_shape(const AttentionCase& test) {
  switch (test.mask) {
    case Mask::kPadding:
      return shape_of({test.batch, 1, 1, test.key_tokens});
    case Mask::kByHead:
      return shape_of({test.heads, test.tokens, test.key_tokens});
    case Mask::kRandom:
      return shape_of({test.batch, test.heads, test.tokens, test.key_tokens});
    default:
      return shape_of({test.tokens, test.key_tokens});
  }
}

// Hidden keys get -infinity or the lowest number, by turns.
Floats make_mask(const AttentionCase& test) {
  const Shape shape = mask_shape(test);
  Floats mask = random_floats(shape.elements(), 4);
  const auto hide = [&](size_t row, size_t key) {
    mask[row * test.key_tokens + key] = key % 2 == 0 ? -std::numeric_limits<float>::infinity()
                                                     : std::numeric_limits<float>::lowest();
  };
  for (size_t row = 0; row < mask.size() / test.key_tokens; ++row) {
    for (size_t key = 0; key < test.key_tokens; ++key) {
      if (test.mask == Mask::kCausal && key > row) hide(row, key);
      if (test.mask == Mask::kPadding && key >= test.key_tokens - 5 * (row + 1)) hide(row, key);
      if (test.mask == Mask::kWindow && (key + 9 < row || key > row)) hide(row, key);
      if (test.mask == Mask::kHidesAll && row == 4) {
        mask[row * test.key_tokens + key] = std::numeric_limits<float>::lowest();
      }
    }
  }
  return mask;
}

double added(const AttentionCase& test, const Floats& mask, size_t b, size_t h, size_t t,
             size_t s) {
  switch (test.mask) {
    case Mask::kNone:
      return 0;
    case Mask::kPadding:
      return mask[b * test.key_tokens + s];
    case Mask::kByHead:
      return mask[(h * test.tokens + t) * test.key_tokens + s];
    case Mask::kRandom:
      return mask[((b * test.heads + h) * test.tokens + t) * test.key_tokens + s];
    case Mask::kHidesAll:  // of which float32 keeps nothing else
      return t == 4 ? 0 : mask[t * test.key_tokens + s];
    default:
      return mask[t * test.key_tokens + s];
  }
}

class OwnAttention : public testing::TestWithParam<AttentionCase> {};

TEST_P(OwnAttention, MatchesFloat64) {
  const AttentionCase& test = GetParam();
  // Queries have their tokens first, the others their batch.
  std::vector<Shape> shapes = {shape_of({test.tokens, test.batch, test.heads, test.depth}),
                               shape_of({test.batch, test.key_tokens, test.heads, test.depth}),
                               shape_of({test.batch, test.key_tokens, test.heads, test.depth}),
                               shape_of({test.batch, test.tokens, test.heads, test.depth})};
  AttentionNodes nodes;
  nodes.queries = {.value = 0, .batch_axis = 1, .head_axis = 2, .token_axis = 0, .depth_axis = 3};
  nodes.keys = {.value = 1, .batch_axis = 0, .head_axis = 2, .token_axis = 1, .depth_axis = 3};
  nodes.values = {.value = 2, .batch_axis = 0, .head_axis = 2, .token_axis = 1, .depth_axis = 3};
  nodes.output = {.value = 3, .batch_axis = 0, .head_axis = 2, .token_axis = 1, .depth_axis = 3};
  Floats queries = random_floats(shapes[0].elements(), 1);
  Floats keys = random_floats(shapes[1].elements(), 2);
  Floats values = random_floats(shapes[2].elements(), 3);
  for (float& x : queries) x *= test.size;
  Graph graph;
  graph.values.resize(5);
  Floats mask;
  if (test.mask != Mask::kNone) {
    nodes.mask = 4;
    mask = make_mask(test);
    shapes.push_back(mask_shape(test));
    graph.values[4].type = DataType::kFp32;
    graph.values[4].shape = shapes[4];
    if (test.is_constant) graph.values[4].data.bytes = std::as_bytes(std::span(mask));
  }

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
          if (test.mask == Mask::kHidesAll && t == 4) scores[s] = 0;
          scores[s] += added(test, mask, b, h, t, s);
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
    auto step = FusedAttention::make(graph, nodes, *kernels, **state);
    ASSERT_TRUE(step.ok());
    ASSERT_TRUE((*step)->can_take(shapes));
    ASSERT_TRUE((*step)->reshape(shapes).ok());
    ScratchMemory scratch(**step, static_cast<size_t>(test.threads));
    Floats output(expected.size());
    void* addresses[] = {queries.data(), keys.data(), values.data(), output.data(),
                         test.is_constant ? nullptr : mask.data()};
    ASSERT_TRUE((*step)->set_pointers(addresses, scratch).ok());
    ASSERT_TRUE((*step)->run().ok());
    EXPECT_TRUE(scratch.is_kept());
    // A score of 30 is within 30 * 2^-24, or some roundings more.
    for (size_t k = 0; k < output.size(); ++k) ASSERT_NEAR(output[k], expected[k], 1e-5) << k;
  }
}
INSTANTIATE_TEST_SUITE_P(
    All, OwnAttention,
    testing::Values(AttentionCase{"OneToken", 1, 1, 1, 1, 32},
                    AttentionCase{"Small", 1, 1, 5, 7, 32}, AttentionCase{"Batch", 3, 2, 9, 20, 32},
                    AttentionCase{"ManyKeys", 1, 2, 3, 200, 64},
                    AttentionCase{"ManyQueries", 1, 2, 150, 203, 64},
                    AttentionCase{"Peaked", 1, 2, 17, 33, 64, 4},
                    AttentionCase{"OddHeadsOfThreads", 1, 3, 50, 40, 64, 1, 2},
                    AttentionCase{"Threads", 2, 4, 31, 31, 32, 1, 3},
                    AttentionCase{"Bias", 2, 2, 9, 20, 32, 1, 1, Mask::kRandom},
                    AttentionCase{"ConstantBiasByHead", 2, 3, 17, 37, 32, 1, 2, Mask::kByHead,
                                  true},
                    AttentionCase{"Causal", 1, 2, 150, 150, 64, 1, 1, Mask::kCausal},
                    AttentionCase{"ConstantCausal", 2, 1, 70, 70, 32, 1, 1, Mask::kCausal, true},
                    AttentionCase{"Padding", 3, 2, 31, 45, 32, 1, 1, Mask::kPadding},
                    AttentionCase{"Window", 1, 2, 131, 131, 32, 1, 1, Mask::kWindow},
                    AttentionCase{"RowThatSeesNothing", 1, 2, 13, 40, 32, 1, 1, Mask::kHidesAll}),
    [](const auto& test) { return std::string(test.param.name); });

// Keys that the mask hides from all queries are not read.
TEST(FusedAttention, HiddenKeysDoNotCount) {
  constexpr size_t kTokens = 40, kDepth = 32, kSeen = 23;
  const std::vector<Shape> shapes = {shape_of({1, kTokens, kDepth}), shape_of({1, kTokens, kDepth}),
                                     shape_of({1, kTokens, kDepth}), shape_of({1, kTokens, kDepth}),
                                     shape_of({1, 1, kTokens})};
  AttentionNodes nodes;
  HeadsValue* roles[] = {&nodes.queries, &nodes.keys, &nodes.values, &nodes.output};
  for (uint32_t i = 0; i < 4; ++i) {
    *roles[i] = {.value = i, .head_axis = 0, .token_axis = 1, .depth_axis = 2};
  }
  nodes.mask = 4;
  Graph graph;
  graph.values.resize(5);
  Floats queries = random_floats(kTokens * kDepth, 1), keys = random_floats(kTokens * kDepth, 2);
  Floats values = random_floats(kTokens * kDepth, 3), mask(kTokens);
  std::fill(mask.begin() + kSeen, mask.end(), -std::numeric_limits<float>::infinity());
  for (const FloatKernels* kernels : all_float_kernels()) {
    SCOPED_TRACE(kernels->name);
    auto state = ProgramState::make(1);
    ASSERT_TRUE(state.ok());
    auto step = FusedAttention::make(graph, nodes, *kernels, **state);
    ASSERT_TRUE(step.ok());
    ASSERT_TRUE((*step)->reshape(shapes).ok());
    ScratchMemory scratch(**step, 1);
    const auto run = [&](float hidden) {
      const size_t first = kSeen * kDepth;
      std::fill(keys.begin() + first, keys.end(), hidden);
      std::fill(values.begin() + first, values.end(), hidden);
      Floats output(kTokens * kDepth);
      void* addresses[] = {queries.data(), keys.data(), values.data(), output.data(), mask.data()};
      EXPECT_TRUE((*step)->set_pointers(addresses, scratch).ok());
      EXPECT_TRUE((*step)->run().ok());
      return output;
    };
    EXPECT_EQ(run(0), run(1e30f));
  }
}

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
