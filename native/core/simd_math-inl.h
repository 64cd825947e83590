// Functions of Highway's vectors of floats, for files that are compiled once for each target.
#if defined(EDGEWISE_CORE_SIMD_MATH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef EDGEWISE_CORE_SIMD_MATH_INL_H
#undef EDGEWISE_CORE_SIMD_MATH_INL_H
#else
#define EDGEWISE_CORE_SIMD_MATH_INL_H
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace edgewise::simd::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_ARCH_ARM_A64
// Highway's drop NaN.
HWY_INLINE float32x4_t clamp_raw(float32x4_t x, float32x4_t min, float32x4_t max) {
  return vminq_f32(vmaxq_f32(x, min), max);
}
HWY_INLINE float32x2_t clamp_raw(float32x2_t x, float32x2_t min, float32x2_t max) {
  return vmin_f32(vmax_f32(x, min), max);
}
#endif

// Of floats. NaN stays NaN. Where that is x86's second operand, the comparison is the selection.
template <class V>
HWY_INLINE V clamp(V x, V min, V max) {
#if HWY_ARCH_X86
  return hn::Min(max, hn::Max(min, x));
#elif HWY_ARCH_ARM_A64
  return V(clamp_raw(x.raw, min.raw, max.raw));
#else
  x = hn::IfThenElse(hn::Lt(x, min), min, x);
  return hn::IfThenElse(hn::Gt(x, max), max, x);
#endif
}

// e^x for x <= 0, within 2 units in the last place; below -87 it is zero. NaN stays NaN, which it
// does not in hwy/contrib/math.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_of_negative(D d, V x) {
  const hn::RebindToSigned<D> integers;
  const V shift = hn::Set(d, 12582912.0f);  // 1.5 * 2^23: rounds to an integer
  const V shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), shift);
  const V whole = hn::Sub(shifted, shift);
  // ln 2 in two parts; |r| <= ln 2 / 2
  V r = hn::NegMulAdd(whole, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(whole, hn::Set(d, -2.12194440e-4f), r);
  // Taylor's polynomial; its seventh term is below 2^-27.
  V y = hn::MulAdd(r, hn::Set(d, 1.0f / 5040), hn::Set(d, 1.0f / 720));
  y = hn::MulAdd(y, r, hn::Set(d, 1.0f / 120));
  y = hn::MulAdd(y, r, hn::Set(d, 1.0f / 24));
  y = hn::MulAdd(y, r, hn::Set(d, 1.0f / 6));
  y = hn::MulAdd(y, r, hn::Set(d, 0.5f));
  y = hn::MulAdd(y, r, hn::Set(d, 1.0f));
  y = hn::MulAdd(y, r, hn::Set(d, 1.0f));
  const auto exponent =
      hn::Sub(hn::BitCast(integers, shifted), hn::Set(integers, 0x4B400000 - 127));
  const V power = hn::BitCast(d, hn::ShiftLeft<23>(exponent));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.0f)), hn::Mul(y, power));
}

#if HWY_TARGET == HWY_SCALAR
template <class D, class V = hn::Vec<D>>
HWY_INLINE void sum_each(D d, const V (&of)[4], float* sums) {
  for (int i = 0; i < 4; ++i) sums[i] = hn::GetLane(of[i]);
  (void)d;
}
#else
// A vector's parts of four floats, added up.
template <class D, class V = hn::Vec<D>>
HWY_INLINE auto sum_quarters(D d, V v) {
  if constexpr (hn::MaxLanes(d) > 4) {
    const hn::Half<D> half;
    return sum_quarters(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  } else {
    return v;
  }
}

// sums[i] = the sum of of[i]'s lanes.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void sum_each(D d, const V (&of)[4], float* sums) {
  const hn::CappedTag<float, 4> quarter;
  const auto add_pairs = [&](auto a, auto b) HWY_ATTR {
    return hn::Add(hn::ConcatEven(quarter, b, a), hn::ConcatOdd(quarter, b, a));
  };
  const auto low = add_pairs(sum_quarters(d, of[0]), sum_quarters(d, of[1]));
  const auto high = add_pairs(sum_quarters(d, of[2]), sum_quarters(d, of[3]));
  hn::StoreU(add_pairs(low, high), quarter, sums);
}
#endif

}  // namespace edgewise::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
