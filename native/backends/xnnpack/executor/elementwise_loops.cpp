#include "backends/xnnpack/executor/elementwise_loops.h"

#include <algorithm>

#define EDGEWISE_TARGETS_WITHOUT HWY_SSE4
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/xnnpack/executor/elementwise_loops.cpp"
#include "core/simd_foreach.h"
#include "core/simd_math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace edgewise::xnnpack {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Vector = hn::Vec<hn::ScalableTag<float>>;

constexpr hn::ScalableTag<float> kVector;
constexpr size_t kLanes = hn::MaxLanes(kVector);

// 1 / (1 + e^-x), by the power that does not overflow.
HWY_INLINE Vector sigmoid(Vector x) {
  const Vector one = hn::Set(kVector, 1);
  const Vector power = simd::HWY_NAMESPACE::exp_of_negative(kVector, hn::Neg(hn::Abs(x)));
  const Vector large = hn::Div(one, hn::Add(one, power));
  return hn::IfNegativeThenElse(x, hn::Mul(power, large), large);
}

// The branches are foreseen: all of a loop go the same way.
HWY_INLINE Vector compute(ElementwiseKind kind, Vector a, Vector b) {
  switch (kind) {
    case ElementwiseKind::kNegate:
      return hn::Neg(a);
    case ElementwiseKind::kSquare:
      return hn::Mul(a, a);
    case ElementwiseKind::kReciprocalSquareRoot:
      return hn::Div(hn::Set(kVector, 1), hn::Sqrt(a));
    case ElementwiseKind::kSigmoid:
      return sigmoid(a);
    case ElementwiseKind::kAdd:
      return hn::Add(a, b);
    case ElementwiseKind::kSubtract:
      return hn::Sub(a, b);
    case ElementwiseKind::kMultiply:
      return hn::Mul(a, b);
    default:
      return a;
  }
}

HWY_INLINE void run_row(const ElementwiseLoop& loop, const float* a, const float* b, float* out) {
  const size_t count = loop.counts[2];
  const bool moves_a = loop.a_steps[2] != 0;
  const bool moves_b = b != nullptr && loop.b_steps[2] != 0;
  const Vector repeated_a = hn::Set(kVector, *a);
  const Vector repeated_b = b == nullptr ? hn::Zero(kVector) : hn::Set(kVector, *b);
  for (size_t i = 0; i < count; i += kLanes) {
    const Vector x = moves_a ? hn::LoadU(kVector, a + i) : repeated_a;
    const Vector y = moves_b ? hn::LoadU(kVector, b + i) : repeated_b;
    const Vector result = compute(loop.kind, x, y);
    if (count - i >= kLanes) {
      hn::StoreU(result, kVector, out + i);
    } else {
      hn::StoreN(result, kVector, out + i, count - i);
    }
  }
}

HWY_INLINE void run_dot(const ElementwiseLoop& loop, const float* a, const float* b, float* out) {
  const size_t count = loop.counts[2];
  const bool moves_b = loop.b_steps[2] != 0;
  const Vector factor = hn::Set(kVector, *b);
  const auto add_products = [&](size_t at, Vector sum) HWY_ATTR {
    const Vector y = moves_b ? hn::LoadU(kVector, b + at) : factor;
    return hn::MulAdd(hn::LoadU(kVector, a + at), y, sum);
  };
  Vector sums[4] = {hn::Zero(kVector), hn::Zero(kVector), hn::Zero(kVector), hn::Zero(kVector)};
  size_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    for (size_t k = 0; k < 4; ++k) sums[k] = add_products(i + k * kLanes, sums[k]);
  }
  for (; i + kLanes <= count; i += kLanes) sums[0] = add_products(i, sums[0]);
  float total =
      hn::ReduceSum(kVector, hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3])));
  for (; i < count; ++i) total += a[i] * b[moves_b ? i : 0];
  *out = total + (loop.c == nullptr ? 0 : *loop.c);
}

}  // namespace

void run_loops(const ElementwiseLoop* loops, size_t count) {
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

}  // namespace HWY_NAMESPACE
}  // namespace edgewise::xnnpack
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace edgewise::xnnpack {

HWY_EXPORT(run_loops);

void run_elementwise_loops(std::span<const ElementwiseLoop> loops) {
  HWY_DYNAMIC_DISPATCH(run_loops)(loops.data(), loops.size());
}

}  // namespace edgewise::xnnpack
#endif
