// attend() and attend_heads() on every level that this CPU has, per element against doubles.
#include "kernels/attend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "core/cpu_level.h"
#include "kernels/half_arrays.h"

namespace edgewise {
namespace {

using Floats = std::vector<float>;

Floats random_floats(size_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> distribution(-1, 1);
  Floats values(count);
  for (float& value : values) value = distribution(generator);
  return values;
}

// Softmax of `seen` products of a query, times the values; `mask` may be null.
std::vector<double> expected(const float* query, const float* keys, const float* values,
                             size_t step, size_t depth, size_t seen, const float* mask) {
  std::vector<double> scores(seen), result(depth);
  for (size_t j = 0; j < seen; ++j) {
    for (size_t d = 0; d < depth; ++d) scores[j] += double(query[d]) * keys[j * step + d];
    if (mask != nullptr) scores[j] += mask[j];
  }
  const double most = seen == 0 ? 0 : *std::ranges::max_element(scores);
  double total = 0;
  for (double& score : scores) total += score = std::exp(score - most);
  for (size_t j = 0; j < seen; ++j) {
    for (size_t d = 0; d < depth; ++d) result[d] += scores[j] / total * values[j * step + d];
  }
  return result;
}

struct State {
  State(size_t count, size_t depth)
      : most(count, -std::numeric_limits<float>::infinity()),
        total(count),
        result(count * depth),
        parts{most.data(), total.data(), result.data()} {}

  Floats most, total, result;
  AttentionState parts;
};

constexpr size_t kKeys = 90;  // of attend_heads()

class Attend : public ::testing::TestWithParam<size_t> {
 protected:
  // Calls test(level's name) on each level.
  template <typename Test>
  void on_all_levels(const Test& test) {
    const CpuLevel before = cpu_level();
    for (const CpuLevel& level : cpu_levels()) {
      limit_cpu(level);
      SCOPED_TRACE(level.name);
      test();
    }
    limit_cpu(before);
  }

  void check_softmax(size_t count) {
    const size_t depth = GetParam(), keys_count = 150, step = depth + 3;
    const Floats queries = random_floats(count * depth, 1);
    const Floats keys = random_floats(keys_count * step, 2);
    const Floats values = random_floats(keys_count * step, 3);
    Floats mask = random_floats(count * keys_count, 4);
    mask[7] = -std::numeric_limits<float>::infinity();
    std::vector<int64_t> limits;
    for (size_t r = 0; r < count; ++r) limits.push_back(std::array{1, 64, 65, 100, 150}[r % 5]);
    Floats transposed(depth * kKeyBlock);
    for (const bool masked : {false, true}) {
      std::vector<const float*> rows;
      for (size_t r = 0; r < count; ++r) rows.push_back(mask.data() + r * keys_count);
      on_all_levels([&] {
        const Attention attention{queries.data(), int64_t(count), int64_t(depth), limits.data(),
                                  masked ? rows.data() : nullptr};
        State state(count, depth);
        for (size_t first = 0; first < keys_count; first += kKeyBlock) {
          const size_t block = std::min(keys_count - first, size_t{kKeyBlock});
          attend(attention, keys.data() + first * step, values.data() + first * step, int64_t(step),
                 int64_t(first), int64_t(block), transposed.data(), state.parts);
        }
        for (size_t r = 0; r < count; ++r) {
          const auto right = expected(&queries[r * depth], keys.data(), values.data(), step, depth,
                                      size_t(limits[r]), masked ? rows[r] : nullptr);
          for (size_t d = 0; d < depth; ++d) {
            ASSERT_NEAR(state.result[r * depth + d] / state.total[r], right[d], 2e-6)
                << r << " " << d;
          }
        }
      });
    }
  }
};

TEST_P(Attend, IsSoftmaxOfProducts) {
  // Fewer than pay for a transposed copy of the keys, and more.
  for (const size_t count : {size_t{5}, size_t{kTransposedFrom + 9}}) {
    SCOPED_TRACE(count);
    check_softmax(count);
  }
}

// `keys` and `values` as attend_heads() gets them, and as floats.
template <typename T>
void check_heads(size_t depth, size_t heads, size_t shared, const std::vector<T>& keys,
                 const std::vector<T>& values, const Floats& float_keys,
                 const Floats& float_values) {
  const size_t keys_count = kKeys;
  const size_t step = heads / shared * depth;
  const Floats queries = random_floats(heads * depth, 5);
  const Floats mask = random_floats(keys_count, 8);
  Floats scores(heads * kKeyBlock);
  const HeadsAttention attention{queries.data(), int64_t(heads), int64_t(shared), int64_t(depth),
                                 scores.data()};
  State state(heads, depth);
  for (size_t first = 0; first < keys_count; first += kKeyBlock) {
    const size_t block = std::min(keys_count - first, size_t{kKeyBlock});
    attend_heads(attention, keys.data() + first * step, values.data() + first * step,
                 mask.data() + first, int64_t(block), state.parts);
  }
  for (size_t h = 0; h < heads; ++h) {
    const size_t group = h / shared * depth;
    const auto right = expected(&queries[h * depth], &float_keys[group], &float_values[group], step,
                                depth, keys_count, mask.data());
    for (size_t d = 0; d < depth; ++d) {
      ASSERT_NEAR(state.result[h * depth + d] / state.total[h], right[d], 2e-6) << h << " " << d;
    }
  }
}

TEST_P(Attend, OfOneQueryOfEachHead) {
  const size_t depth = GetParam();
  if (!can_attend_heads(int64_t(depth))) return;
  for (const auto& [heads, shared] : {std::pair{6, 3}, {7, 1}, {8, 2}, {8, 8}}) {
    SCOPED_TRACE(heads);
    const size_t count = kKeys * size_t(heads / shared) * depth;
    Floats keys = random_floats(count, 6), values = random_floats(count, 7);
    on_all_levels([&] { check_heads(depth, heads, shared, keys, values, keys, values); });

    std::vector<Float16Bits> half_keys(count), half_values(count);
    const auto round = [&](Floats& floats, std::vector<Float16Bits>& bits) {
      floats_to_float16(floats.data(), int64_t(count), bits.data());
      float16_to_floats(bits.data(), int64_t(count), floats.data());
    };
    round(keys, half_keys), round(values, half_values);
    on_all_levels([&] { check_heads(depth, heads, shared, half_keys, half_values, keys, values); });
  }
}

INSTANTIATE_TEST_SUITE_P(Depths, Attend, ::testing::Values(1, 3, 16, 30, 64, 80, 100, 128),
                         [](const auto& test) { return "Depth" + std::to_string(test.param); });

}  // namespace
}  // namespace edgewise
