#include "backends/xnnpack/executor/elementwise_loops.h"

#include <algorithm>

#include "core/clones.h"
#include "core/simd_vector.h"

namespace edgewise::xnnpack {
namespace {

EDGEWISE_INLINE void splat(float number, FloatVector& lanes) { lanes = number - FloatVector{}; }

// 1 / (1 + e^-x), by the power that does not overflow.
EDGEWISE_INLINE void sigmoid(FloatVector& x) {
  const IntVector is_negative = x < 0.0f;
  FloatVector power = (FloatVector)((IntVector)x | INT32_MIN);
  power_of_e(power);
  const FloatVector large = 1.0f / (1.0f + power);
  const FloatVector small = power * large;
  x = (FloatVector)(((IntVector)small & is_negative) | ((IntVector)large & ~is_negative));
}

EDGEWISE_INLINE void reciprocal_square_root(FloatVector& x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) x[i] = 1 / __builtin_sqrtf(x[i]);
}

// a becomes the result. The branches are foreseen: all of a loop go the same way.
EDGEWISE_INLINE void compute(ElementwiseKind kind, FloatVector& a, const FloatVector& b,
                             int64_t count) {
  switch (kind) {
    case ElementwiseKind::kNegate:
      a = -a;
      break;
    case ElementwiseKind::kSquare:
      a *= a;
      break;
    case ElementwiseKind::kReciprocalSquareRoot:
      reciprocal_square_root(a, count);
      break;
    case ElementwiseKind::kSigmoid:
      sigmoid(a);
      break;
    case ElementwiseKind::kAdd:
      a += b;
      break;
    case ElementwiseKind::kSubtract:
      a -= b;
      break;
    case ElementwiseKind::kMultiply:
      a *= b;
      break;
    default:
      break;
  }
}

EDGEWISE_INLINE void run_row(const ElementwiseLoop& loop, const float* a, const float* b,
                             float* out) {
  const int64_t count = loop.counts[2];
  FloatVector repeated_a, repeated_b = {};
  splat(*a, repeated_a);
  if (b != nullptr) splat(*b, repeated_b);
  const bool moves_a = loop.a_steps[2] != 0;
  const bool moves_b = b != nullptr && loop.b_steps[2] != 0;
  for (int64_t i = 0; i < count; i += kLanes) {
    FloatVector x = repeated_a, y = repeated_b;
    if (moves_a) get(a + i, x);
    if (moves_b) get(b + i, y);
    const int64_t left = count - i;
    compute(loop.kind, x, y, std::min(left, kLanes));
    if (left >= kLanes) {
      put(x, out + i);
    } else {
      std::memcpy(out + i, &x, static_cast<size_t>(left) * sizeof(float));
    }
  }
}

// `factor`: what `b` is where it does not move.
EDGEWISE_INLINE void add_products(const float* a, const float* b, bool moves_b,
                                  const FloatVector& factor, FloatVector& sum) {
  FloatVector x, y = factor;
  get(a, x);
  if (moves_b) get(b, y);
  sum += x * y;
}

EDGEWISE_INLINE void run_dot(const ElementwiseLoop& loop, const float* a, const float* b,
                             float* out) {
  const int64_t count = loop.counts[2];
  const bool moves_b = loop.b_steps[2] != 0;
  FloatVector sums[4] = {};
  FloatVector factor;
  splat(*b, factor);
  int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    for (int64_t k = 0; k < 4; ++k) {
      const int64_t at = i + k * kLanes;
      add_products(a + at, b + at, moves_b, factor, sums[k]);
    }
  }
  for (; i + kLanes <= count; i += kLanes) add_products(a + i, b + i, moves_b, factor, sums[0]);
  float total = sum_of((sums[0] + sums[1]) + (sums[2] + sums[3]));
  for (; i < count; ++i) total += a[i] * b[moves_b ? i : 0];
  *out = total + (loop.c == nullptr ? 0 : *loop.c);
}

EDGEWISE_CLONES void run_all(const ElementwiseLoop* loops, size_t count) {
  for (const ElementwiseLoop* loop = loops; loop != loops + count; ++loop) {
    for (uint32_t i = 0; i < loop->counts[0]; ++i) {
      for (uint32_t j = 0; j < loop->counts[1]; ++j) {
        const float* a = loop->a + size_t{i} * loop->a_steps[0] + size_t{j} * loop->a_steps[1];
        const float* b = loop->b;
        if (b != nullptr) b += size_t{i} * loop->b_steps[0] + size_t{j} * loop->b_steps[1];
        float* out = loop->out + size_t{i} * loop->out_steps[0] + size_t{j} * loop->out_steps[1];
        if (loop->kind == ElementwiseKind::kDot) {
          run_dot(*loop, a, b, out);
        } else {
          run_row(*loop, a, b, out);
        }
      }
    }
  }
}

}  // namespace

void run_elementwise_loops(std::span<const ElementwiseLoop> loops) {
  run_all(loops.data(), loops.size());
}

}  // namespace edgewise::xnnpack
