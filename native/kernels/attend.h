// Softmax attention of a few queries to many keys, which are read once.
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

// Takes in keys `first` to `first + count`, at most kKeyBlock, and their values: rows of `depth`
// numbers, `step` apart.
void attend(const Attention& attention, const float* keys, const float* values, int64_t step,
            int64_t first, int64_t count, const AttentionState& state);

}  // namespace edgewise
