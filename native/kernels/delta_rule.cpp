#include "delta_rule.h"

#include <algorithm>

#define EDGEWISE_TARGETS_WITHOUT HWY_SSE4
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/delta_rule.cpp"
#include "core/simd_foreach.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace edgewise {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Vector = hn::Vec<hn::CappedTag<float, kDeltaColumns>>;

constexpr hn::CappedTag<float, kDeltaColumns> kVector;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(kVector));
constexpr int kVectors = static_cast<int>(kDeltaColumns / kLanes);

// kDeltaColumns numbers, in registers.
struct Row {
  Vector part[kVectors];
};

HWY_INLINE Row zeros() {
  Row row;
  for (int i = 0; i < kVectors; ++i) row.part[i] = hn::Zero(kVector);
  return row;
}

HWY_INLINE Row load(const float* from) {
  Row row;
  for (int i = 0; i < kVectors; ++i) row.part[i] = hn::LoadU(kVector, from + i * kLanes);
  return row;
}

HWY_INLINE void store(const Row& row, float* to) {
  for (int i = 0; i < kVectors; ++i) hn::StoreU(row.part[i], kVector, to + i * kLanes);
}

// sum += factor * row
HWY_INLINE void add_scaled(Row& sum, float factor, const Row& row) {
  const Vector f = hn::Set(kVector, factor);
  for (int i = 0; i < kVectors; ++i) sum.part[i] = hn::MulAdd(f, row.part[i], sum.part[i]);
}

HWY_INLINE void scale(Row& row, float factor) {
  const Vector f = hn::Set(kVector, factor);
  for (int i = 0; i < kVectors; ++i) row.part[i] = hn::Mul(row.part[i], f);
}

HWY_INLINE void run(const DeltaRule& rule, int64_t first, float* state) {
  const int64_t count = std::min(kDeltaColumns, rule.width - first);
  std::fill_n(state, rule.depth * kDeltaColumns, 0.0f);
  for (int64_t k = 0; k < rule.depth; ++k) {
    std::copy_n(rule.initial_state + k * rule.width + first, count, state + k * kDeltaColumns);
  }
  const int64_t step = rule.decays_by_key ? 1 : 0;
  float values[kDeltaColumns] = {}, results[kDeltaColumns];
  for (int64_t t = 0; t < rule.tokens; ++t) {
    const float* key = rule.key + t * rule.depth;
    const float* query = rule.query + t * rule.depth;
    const float* decay = rule.decay + t * (rule.decays_by_key ? rule.depth : 1);
    Row recalled = zeros();
    for (int64_t k = 0; k < rule.depth; ++k) {
      add_scaled(recalled, decay[k * step] * key[k], load(state + k * kDeltaColumns));
    }
    std::copy_n(rule.value + t * rule.width + first, count, values);
    Row delta = load(values);
    add_scaled(delta, -1.0f, recalled);
    scale(delta, rule.beta[t]);
    Row result = zeros();
    for (int64_t k = 0; k < rule.depth; ++k) {
      Row row = load(state + k * kDeltaColumns);
      scale(row, decay[k * step]);
      add_scaled(row, key[k], delta);
      store(row, state + k * kDeltaColumns);
      add_scaled(result, query[k], row);
    }
    for (int64_t head = 0;;) {
      store(result, results);
      float* out = rule.out + (head * rule.tokens + t) * rule.width + first;
      std::copy_n(results, count, out);
      if (++head >= rule.queries) break;
      query += rule.tokens * rule.depth;
      result = zeros();
      for (int64_t k = 0; k < rule.depth; ++k) {
        add_scaled(result, query[k], load(state + k * kDeltaColumns));
      }
    }
  }
  for (int64_t k = 0; k < rule.depth; ++k) {
    std::copy_n(state + k * kDeltaColumns, count, rule.final_state + k * rule.width + first);
  }
}

}  // namespace

void run_delta_rule_of(const DeltaRule& rule, int64_t first, float* state) {
  run(rule, first, state);
}

}  // namespace HWY_NAMESPACE
}  // namespace edgewise
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace edgewise {

HWY_EXPORT(run_delta_rule_of);

void run_delta_rule(const DeltaRule& rule, int64_t first, float* state) {
  HWY_DYNAMIC_DISPATCH(run_delta_rule_of)(rule, first, state);
}

}  // namespace edgewise
#endif
