// Softmax attention of queries to many keys, which are read once: queries that have the same keys,
// or one of each head.
#pragma once

#include <cstdint>

namespace edgewise {

// `limits[r]` says how many of all keys query r sees. `mask`, if there is one, is added to the
// products: a row for each query, one number for each of all keys.
struct Attention {
  const float* queries = nullptr;  // [count, depth], scaled
  int64_t count = 0;
  int64_t depth = 0;
  const int64_t* limits = nullptr;          // [count]
  const float* const* mask_rows = nullptr;  // [count]
};

// What is known after some of the keys: of each query the largest product, the sum of the powers
// of e, and their sum with the values.
struct AttentionState {
  float* most = nullptr;    // [count], first -infinity
  float* total = nullptr;   // [count], first 0
  float* result = nullptr;  // [count, depth], first 0
};

inline constexpr int64_t kKeyBlock = 64;

// So many queries pay for a transposed copy of the keys.
inline constexpr int64_t kTransposedFrom = 12;

// Takes in keys `first` to `first + count`, at most kKeyBlock, and their values: rows of `depth`
// numbers, `step` apart. `transposed`: working memory, [depth, kKeyBlock], for kTransposedFrom
// queries and more.
void attend(const Attention& attention, const float* keys, const float* values, int64_t step,
            int64_t first, int64_t count, float* transposed, const AttentionState& state);

// One query of each head. `shared` heads in a row have the same keys.
struct HeadsAttention {
  const float* queries = nullptr;  // [heads, depth], scaled
  int64_t heads = 0;
  int64_t shared = 1;
  int64_t depth = 0;
  float* scores = nullptr;  // working memory, [heads, kKeyBlock]
};

using Float16Bits = uint16_t;

// Whether attend_heads() can have that depth.
bool can_attend_heads(int64_t depth);

// Takes in `count` keys, at most kKeyBlock, and their values, [count, heads / shared, depth] each,
// in the order in which they lie in memory: so the processor foresees what is read, and it comes as
// fast as memory gives it. `mask`: null, or what is added to the products with each key. `state`:
// of each head.
void attend_heads(const HeadsAttention& attention, const float* keys, const float* values,
                  const float* mask, int64_t count, const AttentionState& state);
void attend_heads(const HeadsAttention& attention, const Float16Bits* keys,
                  const Float16Bits* values, const float* mask, int64_t count,
                  const AttentionState& state);

}  // namespace edgewise
