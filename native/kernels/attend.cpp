#include "attend.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/clones.h"
#include "core/simd_vector.h"

namespace edgewise {
namespace {

constexpr int64_t kPart = 4 * kLanes;  // of a value, summed in registers
constexpr int64_t kAhead = 16;         // keys that are fetched before their turn
constexpr float kNothing = -std::numeric_limits<float>::infinity();

// The sums of four vectors' lanes.
EDGEWISE_INLINE void sum_each(const FloatVector (&of)[4], Quarter& sums) {
  Quarter q[4];
  for (int i = 0; i < 4; ++i) fold(of[i], q[i]);
  const Quarter a = __builtin_shufflevector(q[0], q[1], 0, 2, 4, 6) +
                    __builtin_shufflevector(q[0], q[1], 1, 3, 5, 7);
  const Quarter b = __builtin_shufflevector(q[2], q[3], 0, 2, 4, 6) +
                    __builtin_shufflevector(q[2], q[3], 1, 3, 5, 7);
  sums = __builtin_shufflevector(a, b, 0, 2, 4, 6) + __builtin_shufflevector(a, b, 1, 3, 5, 7);
}

// Products of kRows queries with `count` keys, to scores[r * kKeyBlock + key].
template <int kRows>
EDGEWISE_INLINE void multiply_keys(const float* query, const float* key, const float* value,
                                   int64_t step, int64_t count, int64_t depth, float* scores) {
  int64_t j = 0;
  for (; j + 4 <= count; j += 4, key += 4 * step) {
    // Rows lie far apart, which the processor does not foresee. Values are read after the keys.
    for (int i = 0; i < 4; ++i) {
      for (int64_t d = 0; d < depth; d += kLanes) {
        __builtin_prefetch(key + (i + kAhead) * step + d);
        __builtin_prefetch(value + (j + i) * step + d);
      }
    }
    FloatVector sums[kRows][4] = {};
    int64_t d = 0;
    for (; d + kLanes <= depth; d += kLanes) {
      FloatVector q[kRows];
      for (int r = 0; r < kRows; ++r) get(query + r * depth + d, q[r]);
      for (int i = 0; i < 4; ++i) {
        FloatVector k;
        get(key + i * step + d, k);
        for (int r = 0; r < kRows; ++r) sums[r][i] += q[r] * k;
      }
    }
    for (int r = 0; r < kRows; ++r) {
      Quarter total;
      sum_each(sums[r], total);
      for (int64_t e = d; e < depth; ++e) {
        for (int i = 0; i < 4; ++i) total[i] += query[r * depth + e] * key[i * step + e];
      }
      std::memcpy(scores + r * kKeyBlock + j, &total, sizeof(total));
    }
  }
  for (; j < count; ++j, key += step) {
    for (int r = 0; r < kRows; ++r) {
      float total = 0;
      for (int64_t d = 0; d < depth; ++d) total += query[r * depth + d] * key[d];
      scores[r * kKeyBlock + j] = total;
    }
  }
}

// Scores become powers of e, relative to the largest of the query's up to now; the earlier sums
// are made relative to it, too. `seen`: how many of the `count` scores count; `mask`: what is
// added to each, or null. What lies between `seen` and the next multiple of kLanes after `count`
// becomes 0.
EDGEWISE_INLINE void soften(const float* mask, int64_t seen, int64_t count, int64_t depth,
                            float* scores, int64_t row, const AttentionState& state) {
  float most = state.most[row];
  if (mask != nullptr) {
    for (int64_t j = 0; j < seen; ++j) scores[j] += mask[j];
  }
  for (int64_t j = 0; j < seen; ++j) most = std::max(most, scores[j]);
  const int64_t end = (count + kLanes - 1) / kLanes * kLanes;
  if (most == kNothing) {
    std::fill_n(scores, end, 0.0f);
    return;
  }
  std::fill(scores + seen, scores + end, kNothing);
  FloatVector earlier = {};
  earlier += state.most[row] - most;
  power_of_e(earlier);
  FloatVector sums = {};
  for (int64_t j = 0; j < end; j += kLanes) {
    FloatVector x;
    get(scores + j, x);
    x -= most;
    power_of_e(x);
    put(x, scores + j);
    sums += x;
  }
  state.total[row] = state.total[row] * earlier[0] + sum_of(sums);
  if (most != state.most[row]) {
    float* result = state.result + row * depth;
    for (int64_t d = 0; d < depth; ++d) result[d] *= earlier[0];
  }
  state.most[row] = most;
}

// Adds the values, times the scores, to results.
template <int kRows>
EDGEWISE_INLINE void add_values(const float* scores, const float* values, int64_t step,
                                int64_t count, int64_t depth, float* result) {
  int64_t d = 0;
  for (; d + kPart <= depth; d += kPart) {
    FloatVector sums[kRows][4];
    for (int r = 0; r < kRows; ++r) {
      for (int i = 0; i < 4; ++i) get(result + r * depth + d + i * kLanes, sums[r][i]);
    }
    const float* value = values + d;
    for (int64_t j = 0; j < count; ++j, value += step) {
      for (int i = 0; i < 4; ++i) {
        FloatVector v;
        get(value + i * kLanes, v);
        for (int r = 0; r < kRows; ++r) sums[r][i] += v * scores[r * kKeyBlock + j];
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (int i = 0; i < 4; ++i) put(sums[r][i], result + r * depth + d + i * kLanes);
    }
  }
  if (d == depth) return;
  for (int64_t j = 0; j < count; ++j) {
    for (int r = 0; r < kRows; ++r) {
      const float factor = scores[r * kKeyBlock + j];
      for (int64_t e = d; e < depth; ++e) {
        result[r * depth + e] += factor * values[j * step + e];
      }
    }
  }
}

template <int kRows>
EDGEWISE_INLINE void attend_rows(const Attention& attention, int64_t row, const float* keys,
                                 const float* values, int64_t step, int64_t first, int64_t count,
                                 const AttentionState& state) {
  alignas(64) float scores[kRows * kKeyBlock];
  const int64_t depth = attention.depth;
  multiply_keys<kRows>(attention.queries + row * depth, keys, values, step, count, depth, scores);
  for (int r = 0; r < kRows; ++r) {
    const float* mask = attention.mask_rows == nullptr ? nullptr : attention.mask_rows[row + r];
    const int64_t seen = std::clamp<int64_t>(attention.limits[row + r] - first, 0, count);
    soften(mask == nullptr ? nullptr : mask + first, seen, count, depth, scores + r * kKeyBlock,
           row + r, state);
  }
  add_values<kRows>(scores, values, step, count, depth, state.result + row * depth);
}

EDGEWISE_CLONES void attend_all(const Attention* attention, const float* keys, const float* values,
                                int64_t step, int64_t first, int64_t count,
                                const AttentionState* state) {
  int64_t row = 0;
  for (; row + 2 <= attention->count; row += 2) {
    attend_rows<2>(*attention, row, keys, values, step, first, count, *state);
  }
  if (row < attention->count) {
    attend_rows<1>(*attention, row, keys, values, step, first, count, *state);
  }
}

// Products of all heads' queries with one position's keys, to scores[head * kKeyBlock].
EDGEWISE_INLINE void multiply_position(const HeadsAttention& attention, const float* keys,
                                       float* scores) {
  const int64_t depth = attention.depth;
  for (int64_t first = 0; first < attention.heads; first += 4) {
    FloatVector sums[4] = {};
    const float* query[4];
    const float* key[4];
    for (int i = 0; i < 4; ++i) {
      const int64_t head = std::min(first + i, attention.heads - 1);
      query[i] = attention.queries + head * depth;
      key[i] = keys + head / attention.shared * depth;
    }
    for (int64_t d = 0; d < depth; d += kLanes) {
      for (int i = 0; i < 4; ++i) {
        FloatVector q, k;
        get(query[i] + d, q);
        get(key[i] + d, k);
        sums[i] += q * k;
      }
    }
    Quarter total;
    sum_each(sums, total);
    for (int i = 0; i < 4; ++i) {
      scores[std::min(first + i, attention.heads - 1) * kKeyBlock] = total[i];
    }
  }
}

EDGEWISE_CLONES void attend_all_heads(const HeadsAttention* attention, const float* keys,
                                      const float* values, const float* mask, int64_t count,
                                      float* scores, const AttentionState* state) {
  const int64_t heads = attention->heads, depth = attention->depth, shared = attention->shared;
  const int64_t step = heads / shared * depth;
  for (int64_t j = 0; j < count; ++j) multiply_position(*attention, keys + j * step, scores + j);
  for (int64_t head = 0; head < heads; ++head) {
    soften(mask, count, count, depth, scores + head * kKeyBlock, head, *state);
  }
  for (int64_t j = 0; j < count; ++j, values += step) {
    for (int64_t head = 0; head < heads; ++head) {
      const float* value = values + head / shared * depth;
      const float score = scores[head * kKeyBlock + j];
      float* result = state->result + head * depth;
      for (int64_t d = 0; d < depth; d += kLanes) {
        FloatVector sum, v;
        get(result + d, sum);
        get(value + d, v);
        sum += v * score;
        put(sum, result + d);
      }
    }
  }
}

}  // namespace

void attend(const Attention& attention, const float* keys, const float* values, int64_t step,
            int64_t first, int64_t count, const AttentionState& state) {
  attend_all(&attention, keys, values, step, first, count, &state);
}

bool can_attend_heads(int64_t depth) { return depth % kLanes == 0; }

void attend_heads(const HeadsAttention& attention, const float* keys, const float* values,
                  const float* mask, int64_t count, float* scores, const AttentionState& state) {
  attend_all_heads(&attention, keys, values, mask, count, scores, &state);
}

}  // namespace edgewise
