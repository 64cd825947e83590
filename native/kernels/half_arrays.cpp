#include "half_arrays.h"

#include <cstddef>

#define EDGEWISE_TARGETS_WITHOUT HWY_SSE4
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/half_arrays.cpp"
#include "core/simd_foreach.h"
#include "core/simd_half-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace edgewise {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Calls convert(vector) for each vector of `source`, the last one filled up with zeros.
template <class From, class To, class Source, class Target, class Convert>
HWY_INLINE void for_each_vector(From from, To to, const Source* source, int64_t count,
                                Target* target, const Convert& convert) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(from));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(convert(hn::LoadU(from, source + i)), to, target + i);
  }
  if (i < count) {
    const auto left = static_cast<size_t>(count - i);
    hn::StoreN(convert(hn::LoadN(from, source + i, left)), to, target + i, left);
  }
}

constexpr hn::ScalableTag<float> kFloats;
constexpr hn::Rebind<hwy::float16_t, decltype(kFloats)> kHalves;
constexpr hn::Rebind<uint16_t, decltype(kFloats)> kBits;
constexpr hn::RebindToUnsigned<decltype(kFloats)> kWords;

}  // namespace

void from_float16(const uint16_t* source, int64_t count, float* target) {
  for_each_vector(kBits, kFloats, source, count, target, [](auto bits) HWY_ATTR {
    return simd::HWY_NAMESPACE::from_float16(kFloats, bits);
  });
}

void to_float16(const float* source, int64_t count, uint16_t* target) {
  for_each_vector(kFloats, kBits, source, count, target,
                  [](auto x) HWY_ATTR { return hn::BitCast(kBits, hn::DemoteTo(kHalves, x)); });
}

void from_bfloat16(const uint16_t* source, int64_t count, float* target) {
  for_each_vector(kBits, kFloats, source, count, target, [](auto bits) HWY_ATTR {
    return hn::BitCast(kFloats, hn::ShiftLeft<16>(hn::PromoteTo(kWords, bits)));
  });
}

void to_bfloat16(const float* source, int64_t count, uint16_t* target) {
  for_each_vector(kFloats, kBits, source, count, target, [](auto x) HWY_ATTR {
    const auto words = hn::BitCast(kWords, x);
    const auto odd = hn::And(hn::ShiftRight<16>(words), hn::Set(kWords, 1u));
    const auto up = hn::Add(hn::Add(words, odd), hn::Set(kWords, 0x7FFFu));
    const auto rounded =
        hn::IfThenElse(hn::RebindMask(kWords, hn::IsNaN(x)), hn::Set(kWords, 0x7FC00000u), up);
    return hn::TruncateTo(kBits, hn::ShiftRight<16>(rounded));
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace edgewise
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace edgewise {

HWY_EXPORT(from_float16);
HWY_EXPORT(from_bfloat16);
HWY_EXPORT(to_float16);
HWY_EXPORT(to_bfloat16);

void float16_to_floats(const uint16_t* source, int64_t count, float* target) {
  HWY_DYNAMIC_DISPATCH(from_float16)(source, count, target);
}
void bfloat16_to_floats(const uint16_t* source, int64_t count, float* target) {
  HWY_DYNAMIC_DISPATCH(from_bfloat16)(source, count, target);
}
void floats_to_float16(const float* source, int64_t count, uint16_t* target) {
  HWY_DYNAMIC_DISPATCH(to_float16)(source, count, target);
}
void floats_to_bfloat16(const float* source, int64_t count, uint16_t* target) {
  HWY_DYNAMIC_DISPATCH(to_bfloat16)(source, count, target);
}

}  // namespace edgewise
#endif
