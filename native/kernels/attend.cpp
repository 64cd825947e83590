#include "attend.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#define EDGEWISE_TARGETS_WITHOUT HWY_SSE4
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attend.cpp"
#include "core/simd_foreach.h"
#include "core/simd_half-inl.h"
#include "core/simd_math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace edgewise {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using simd::HWY_NAMESPACE::exp_of_negative;
using Vector = hn::Vec<hn::ScalableTag<float>>;

constexpr hn::ScalableTag<float> kVector;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(kVector));
constexpr int64_t kLine = 16;   // floats that are fetched at once
constexpr int64_t kAhead = 16;  // keys that are fetched before their turn
constexpr bool kManyRegisters = HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64;  // 32
constexpr int kMostRows = 6;  // at once, of queries to keys that were transposed
constexpr float kNothing = -std::numeric_limits<float>::infinity();

HWY_INLINE Vector zero() { return hn::Zero(kVector); }
HWY_INLINE Vector load(const float* from) { return hn::LoadU(kVector, from); }
HWY_INLINE Vector load(const Float16Bits* from) {
  constexpr hn::Rebind<uint16_t, decltype(kVector)> bits;
  return simd::HWY_NAMESPACE::from_float16(kVector, hn::LoadU(bits, from));
}
HWY_INLINE void store(Vector x, float* to) { hn::StoreU(x, kVector, to); }

// Products of kRows queries with `count` keys, to scores[r * kKeyBlock + key].
template <int kRows>
HWY_INLINE void multiply_keys(const float* query, const float* key, const float* value,
                              int64_t step, int64_t count, int64_t depth, float* scores) {
  int64_t j = 0;
  for (; j + 4 <= count; j += 4, key += 4 * step) {
    // Rows lie far apart, which the processor does not foresee. Values are read after the keys.
    for (int i = 0; i < 4; ++i) {
      for (int64_t d = 0; d < depth; d += kLine) {
        __builtin_prefetch(key + (i + kAhead) * step + d);
        __builtin_prefetch(value + (j + i) * step + d);
      }
    }
    Vector sums[kRows][4];
    for (int r = 0; r < kRows; ++r) {
      for (int i = 0; i < 4; ++i) sums[r][i] = zero();
    }
    int64_t d = 0;
    for (; d + kLanes <= depth; d += kLanes) {
      Vector q[kRows];
      for (int r = 0; r < kRows; ++r) q[r] = load(query + r * depth + d);
      for (int i = 0; i < 4; ++i) {
        const Vector k = load(key + i * step + d);
        for (int r = 0; r < kRows; ++r) sums[r][i] = hn::MulAdd(q[r], k, sums[r][i]);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      float* total = scores + r * kKeyBlock + j;
      simd::HWY_NAMESPACE::sum_each(kVector, sums[r], total);
      for (int64_t e = d; e < depth; ++e) {
        for (int i = 0; i < 4; ++i) total[i] += query[r * depth + e] * key[i * step + e];
      }
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
HWY_NOINLINE void soften(const float* mask, int64_t seen, int64_t count, int64_t depth,
                         float* scores, int64_t row, const AttentionState& state) {
  float most = state.most[row];
  Vector mosts = hn::Set(kVector, most);
  int64_t at = 0;
  for (; at + kLanes <= seen; at += kLanes) {
    Vector x = load(scores + at);
    if (mask != nullptr) {
      x = hn::Add(x, load(mask + at));
      store(x, scores + at);
    }
    mosts = hn::Max(mosts, x);
  }
  most = hn::ReduceMax(kVector, mosts);
  for (; at < seen; ++at) {
    if (mask != nullptr) scores[at] += mask[at];
    most = scores[at] > most ? scores[at] : most;
  }
  const int64_t end = (count + kLanes - 1) / kLanes * kLanes;
  if (most == kNothing) {
    for (int64_t j = 0; j < end; ++j) scores[j] = 0;
    return;
  }
  for (int64_t j = seen; j < end; ++j) scores[j] = kNothing;
  const float earlier =
      hn::GetLane(exp_of_negative(kVector, hn::Set(kVector, state.most[row] - most)));
  Vector sums = zero();
  for (int64_t j = 0; j < end; j += kLanes) {
    const Vector x = exp_of_negative(kVector, hn::Sub(load(scores + j), hn::Set(kVector, most)));
    store(x, scores + j);
    sums = hn::Add(sums, x);
  }
  state.total[row] = state.total[row] * earlier + hn::ReduceSum(kVector, sums);
  if (most != state.most[row]) {
    float* result = state.result + row * depth;
    for (int64_t d = 0; d < depth; ++d) result[d] *= earlier;
  }
  state.most[row] = most;
}

// Adds the values, times the scores, to a part of the results: kParts vectors.
template <int kRows, int kParts, class T>
HWY_INLINE void add_part(const float* scores, const T* values, int64_t step, int64_t count,
                         int64_t depth, float* result) {
  Vector sums[kRows][kParts];
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kParts; ++i) sums[r][i] = load(result + r * depth + i * kLanes);
  }
  for (int64_t j = 0; j < count; ++j, values += step) {
    for (int i = 0; i < kParts; ++i) {
      const Vector v = load(values + i * kLanes);
      for (int r = 0; r < kRows; ++r) {
        sums[r][i] = hn::MulAdd(v, hn::Set(kVector, scores[r * kKeyBlock + j]), sums[r][i]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kParts; ++i) store(sums[r][i], result + r * depth + i * kLanes);
  }
}

// `depth`: of floats any, else a multiple of kLanes.
template <int kRows, class T>
HWY_INLINE void add_values(const float* scores, const T* values, int64_t step, int64_t count,
                           int64_t depth, float* result) {
  constexpr int kParts = kManyRegisters || kRows <= 2 ? 4 : 2;
  int64_t d = 0;
  for (; d + kParts * kLanes <= depth; d += kParts * kLanes) {
    add_part<kRows, kParts>(scores, values + d, step, count, depth, result + d);
  }
  for (; d + kLanes <= depth; d += kLanes) {
    add_part<kRows, 1>(scores, values + d, step, count, depth, result + d);
  }
  if constexpr (std::is_same_v<T, float>) {
    if (d == depth) return;
    for (int64_t j = 0; j < count; ++j) {
      for (int r = 0; r < kRows; ++r) {
        const float factor = scores[r * kKeyBlock + j];
        for (int64_t e = d; e < depth; ++e) result[r * depth + e] += factor * values[j * step + e];
      }
    }
  }
}

// to[d * kKeyBlock + key] = keys[key * step + d]; what is behind `count` becomes 0.
HWY_INLINE void transpose_keys(const float* keys, int64_t step, int64_t count, int64_t depth,
                               float* to) {
  int64_t j = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::FixedTag<float, 4> four;
  for (; j + 4 <= count; j += 4, keys += 4 * step) {
    int64_t d = 0;
    for (; d + 4 <= depth; d += 4) {
      const auto k0 = hn::LoadU(four, keys + d), k1 = hn::LoadU(four, keys + step + d);
      const auto k2 = hn::LoadU(four, keys + 2 * step + d),
                 k3 = hn::LoadU(four, keys + 3 * step + d);
      const auto low02 = hn::InterleaveLower(k0, k2), high02 = hn::InterleaveUpper(four, k0, k2);
      const auto low13 = hn::InterleaveLower(k1, k3), high13 = hn::InterleaveUpper(four, k1, k3);
      float* out = to + d * kKeyBlock + j;
      hn::StoreU(hn::InterleaveLower(low02, low13), four, out);
      hn::StoreU(hn::InterleaveUpper(four, low02, low13), four, out + kKeyBlock);
      hn::StoreU(hn::InterleaveLower(high02, high13), four, out + 2 * kKeyBlock);
      hn::StoreU(hn::InterleaveUpper(four, high02, high13), four, out + 3 * kKeyBlock);
    }
    for (; d < depth; ++d) {
      for (int i = 0; i < 4; ++i) to[d * kKeyBlock + j + i] = keys[i * step + d];
    }
  }
#endif
  for (; j < kKeyBlock; ++j, keys += step) {
    for (int64_t d = 0; d < depth; ++d) to[d * kKeyBlock + j] = j < count ? keys[d] : 0;
  }
}

// As multiply_keys(), of keys that were transposed: no sums across a vector.
template <int kRows>
HWY_INLINE void multiply_transposed(const float* query, const float* keys, int64_t depth,
                                    float* scores) {
  constexpr int kParts = kManyRegisters ? 4 : 2;
  for (int64_t at = 0; at < kKeyBlock; at += kParts * kLanes) {
    Vector sums[kRows][kParts];
    for (int r = 0; r < kRows; ++r) {
      for (int i = 0; i < kParts; ++i) sums[r][i] = zero();
    }
    for (int64_t d = 0; d < depth; ++d) {
      Vector k[kParts];
      for (int i = 0; i < kParts; ++i) k[i] = load(keys + d * kKeyBlock + at + i * kLanes);
      for (int r = 0; r < kRows; ++r) {
        const Vector q = hn::Set(kVector, query[r * depth + d]);
        for (int i = 0; i < kParts; ++i) sums[r][i] = hn::MulAdd(q, k[i], sums[r][i]);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (int i = 0; i < kParts; ++i) store(sums[r][i], scores + r * kKeyBlock + at + i * kLanes);
    }
  }
}

// `transposed`: the keys, for kMostRows alone.
template <int kRows>
HWY_INLINE void attend_rows(const Attention& attention, int64_t row, const float* keys,
                            const float* transposed, const float* values, int64_t step,
                            int64_t first, int64_t count, const AttentionState& state) {
  alignas(64) float scores[kRows * kKeyBlock];
  const int64_t depth = attention.depth;
  const float* query = attention.queries + row * depth;
  if constexpr (kRows == kMostRows) {
    multiply_transposed<kRows>(query, transposed, depth, scores);
  } else {
    multiply_keys<kRows>(query, keys, values, step, count, depth, scores);
  }
  for (int r = 0; r < kRows; ++r) {
    const float* mask = attention.mask_rows == nullptr ? nullptr : attention.mask_rows[row + r];
    const int64_t limit = attention.limits[row + r] - first;
    const int64_t seen = limit < 0 ? 0 : limit > count ? count : limit;
    soften(mask == nullptr ? nullptr : mask + first, seen, count, depth, scores + r * kKeyBlock,
           row + r, state);
  }
  add_values<kRows>(scores, values, step, count, depth, state.result + row * depth);
}

// To the second nearest cache: it is more than the nearest holds.
template <class T>
HWY_INLINE void prefetch_row(const T* from, int64_t count) {
  for (int64_t i = 0; i < count; i += kLine * 4 / int64_t{sizeof(T)}) {
    __builtin_prefetch(from + i, 0, 2);
  }
}

// Whether values are added up head by head, in registers, from where keys had them fetched: what
// is computed takes more time than memory then. Of floats it does not, and they come faster in the
// order in which they lie in memory.
template <class T>
constexpr bool kIsGrouped = sizeof(T) < sizeof(float);

// Products of all heads' queries with one position's keys, to scores[head * kKeyBlock]. kKeys: how
// many keys four heads in a row have.
template <int kKeys, class T>
HWY_INLINE void multiply_position(const HeadsAttention& attention, const T* keys, float* scores) {
  const int64_t depth = attention.depth, last = attention.heads - 1;
  for (int64_t first = 0; first <= last; first += 4) {
    Vector sums[4] = {zero(), zero(), zero(), zero()};
    const float* query[4];
    const T* key[kKeys];
    for (int i = 0; i < 4; ++i) {
      const int64_t head = first + i < last ? first + i : last;
      query[i] = attention.queries + head * depth;
      key[i * kKeys / 4] = keys + head / attention.shared * depth;
    }
    for (int64_t d = 0; d < depth; d += kLanes) {
      Vector k[kKeys];
      for (int i = 0; i < kKeys; ++i) k[i] = load(key[i] + d);
      for (int i = 0; i < 4; ++i) {
        sums[i] = hn::MulAdd(load(query[i] + d), k[i * kKeys / 4], sums[i]);
      }
    }
    float total[4];
    simd::HWY_NAMESPACE::sum_each(kVector, sums, total);
    for (int i = 0; i < 4; ++i) {
      scores[(first + i < last ? first + i : last) * kKeyBlock] = total[i];
    }
  }
}

template <class T>
HWY_INLINE void multiply_positions(const HeadsAttention& attention, const T* keys, int64_t count,
                                   const T* values) {
  const int64_t heads = attention.heads, shared = attention.shared;
  const int64_t step = heads / shared * attention.depth;
  const bool in_pairs = kIsGrouped<T> && shared % 2 == 0 && heads % 4 == 0;
  for (int64_t j = 0; j < count; ++j) {
    float* scores = attention.scores + j;
    if constexpr (kIsGrouped<T>) {
      prefetch_row(values + j * step, step);
      if (in_pairs) multiply_position<2>(attention, keys + j * step, scores);
    }
    if (!in_pairs) multiply_position<4>(attention, keys + j * step, scores);
  }
}

template <class T>
HWY_INLINE void add_positions(const HeadsAttention& attention, const T* values, int64_t count,
                              float* result) {
  const int64_t heads = attention.heads, depth = attention.depth, shared = attention.shared;
  const int64_t step = heads / shared * depth;
  const float* scores = attention.scores;
  if constexpr (kIsGrouped<T>) {
    for (int64_t head = 0; head < heads; values += depth) {
      const int64_t end = head + shared;
      for (; head + 2 <= end; head += 2) {
        add_values<2>(scores + head * kKeyBlock, values, step, count, depth, result + head * depth);
      }
      if (head == end) continue;
      add_values<1>(scores + head * kKeyBlock, values, step, count, depth, result + head * depth);
      ++head;
    }
  } else {
    for (int64_t j = 0; j < count; ++j, values += step) {
      for (int64_t head = 0; head < heads; ++head) {
        const T* value = values + head / shared * depth;
        const Vector score = hn::Set(kVector, scores[head * kKeyBlock + j]);
        for (int64_t d = 0; d < depth; d += kLanes) {
          float* sum = result + head * depth + d;
          store(hn::MulAdd(load(value + d), score, load(sum)), sum);
        }
      }
    }
  }
}

template <class T>
HWY_INLINE void attend_each_head(const HeadsAttention& attention, const T* keys, const T* values,
                                 const float* mask, int64_t count, const AttentionState& state) {
  multiply_positions(attention, keys, count, values);
  for (int64_t head = 0; head < attention.heads; ++head) {
    soften(mask, count, count, attention.depth, attention.scores + head * kKeyBlock, head, state);
  }
  add_positions(attention, values, count, state.result);
}

}  // namespace

void attend_all(const Attention& attention, const float* keys, const float* values, int64_t step,
                int64_t first, int64_t count, float* transposed, const AttentionState& state) {
  int64_t row = 0;
  const auto attend_some = [&]<int kRows>(std::integral_constant<int, kRows>) HWY_ATTR {
    for (; row + kRows <= attention.count; row += kRows) {
      attend_rows<kRows>(attention, row, keys, transposed, values, step, first, count, state);
    }
  };
  if (attention.count >= kTransposedFrom) {
    transpose_keys(keys, step, count, attention.depth, transposed);
    attend_some(std::integral_constant<int, kMostRows>());
  }
  attend_some(std::integral_constant<int, 2>());
  attend_some(std::integral_constant<int, 1>());
}

void attend_heads_float(const HeadsAttention& attention, const float* keys, const float* values,
                        const float* mask, int64_t count, const AttentionState& state) {
  attend_each_head(attention, keys, values, mask, count, state);
}

void attend_heads_float16(const HeadsAttention& attention, const Float16Bits* keys,
                          const Float16Bits* values, const float* mask, int64_t count,
                          const AttentionState& state) {
  attend_each_head(attention, keys, values, mask, count, state);
}

}  // namespace HWY_NAMESPACE
}  // namespace edgewise
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace edgewise {

HWY_EXPORT(attend_all);
HWY_EXPORT(attend_heads_float);
HWY_EXPORT(attend_heads_float16);

void attend(const Attention& attention, const float* keys, const float* values, int64_t step,
            int64_t first, int64_t count, float* transposed, const AttentionState& state) {
  HWY_DYNAMIC_DISPATCH(attend_all)(attention, keys, values, step, first, count, transposed, state);
}

bool can_attend_heads(int64_t depth) {
  constexpr int64_t kMostLanes = 16;  // of any target
  return depth % kMostLanes == 0;
}

void attend_heads(const HeadsAttention& attention, const float* keys, const float* values,
                  const float* mask, int64_t count, const AttentionState& state) {
  HWY_DYNAMIC_DISPATCH(attend_heads_float)(attention, keys, values, mask, count, state);
}

void attend_heads(const HeadsAttention& attention, const Float16Bits* keys,
                  const Float16Bits* values, const float* mask, int64_t count,
                  const AttentionState& state) {
  HWY_DYNAMIC_DISPATCH(attend_heads_float16)(attention, keys, values, mask, count, state);
}

}  // namespace edgewise
#endif
