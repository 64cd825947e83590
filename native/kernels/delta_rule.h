// The gated delta rule, the recurrence of linear attention in Qwen3-Next and Kimi Linear
// (arXiv:2412.06464): what a state recalls for a key is corrected towards the key's value.
#pragma once

#include <cstdint>

namespace edgewise {

// One head of keys: for each token t in turn
//   S = diag(decay[t]) S;  S += key[t] (x) beta[t] (value[t] - S' key[t]);  out[t] = S' query[t]
// The columns of the state S [depth, width] do not depend on each other.
struct DeltaRule {
  int64_t tokens = 0;
  int64_t depth = 0;
  int64_t width = 0;
  int64_t queries = 0;           // heads of queries that read this state
  const float* query = nullptr;  // [queries, tokens, depth]
  const float* key = nullptr;    // [tokens, depth]
  const float* value = nullptr;  // [tokens, width]
  const float* decay = nullptr;  // [tokens, depth], or [tokens] for all of a token's keys
  bool decays_by_key = false;
  const float* beta = nullptr;           // [tokens]
  const float* initial_state = nullptr;  // [depth, width]
  float* out = nullptr;                  // [queries, tokens, width]
  float* final_state = nullptr;          // [depth, width]; may be the initial one
};

inline constexpr int64_t kDeltaColumns = 32;  // of which a state's part fits the nearest cache

// All tokens, for the columns from `first` on, at most kDeltaColumns. `state`: working memory,
// [depth, kDeltaColumns].
void run_delta_rule(const DeltaRule& rule, int64_t first, float* state);

}  // namespace edgewise
