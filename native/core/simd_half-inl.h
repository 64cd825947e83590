// Highway's vectors of float16, held as bits, for files that are compiled once for each target.
#if defined(EDGEWISE_CORE_SIMD_HALF_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef EDGEWISE_CORE_SIMD_HALF_INL_H
#undef EDGEWISE_CORE_SIMD_HALF_INL_H
#else
#define EDGEWISE_CORE_SIMD_HALF_INL_H
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace edgewise::simd::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// `bits`: as many as `d`, a tag of floats, has lanes. Exact.
template <class D, class V>
HWY_INLINE hn::Vec<D> from_float16(D d, V bits) {
#if !(HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2) && !HWY_ARCH_ARM_A64
  // Highway 1.2 makes finite numbers of infinities where the CPU has no instruction for it.
  const hn::RebindToUnsigned<D> words;
  const auto word = hn::PromoteTo(words, bits);
  const auto magnitude = hn::And(word, hn::Set(words, 0x7FFFu));
  const auto sign = hn::ShiftLeft<16>(hn::Xor(word, magnitude));
  const auto shifted = hn::ShiftLeft<13>(magnitude);
  const auto normal = hn::Add(shifted, hn::Set(words, (127u - 15u) << 23));
  const auto special = hn::Or(shifted, hn::Set(words, 0x7F800000u));
  const auto whole = hn::ConvertTo(d, hn::BitCast(hn::RebindToSigned<D>(), magnitude));
  const auto subnormal = hn::BitCast(words, hn::Mul(whole, hn::Set(d, 0x1p-24f)));
  auto result = hn::IfThenElse(hn::Gt(magnitude, hn::Set(words, 0x7BFFu)), special, normal);
  result = hn::IfThenElse(hn::Lt(magnitude, hn::Set(words, 0x0400u)), subnormal, result);
  return hn::BitCast(d, hn::Or(result, sign));
#else
  return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), bits));
#endif
}

}  // namespace edgewise::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
