// Products of 8-bit integers in vectors of AVX2, for files that are compiled once for each target.
// Both factors become 16 bits on the way: no product saturates, as those of bytes do there.
#if defined(EDGEWISE_XNNPACK_INT8_PRODUCTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef EDGEWISE_XNNPACK_INT8_PRODUCTS_INL_H
#undef EDGEWISE_XNNPACK_INT8_PRODUCTS_INL_H
#else
#define EDGEWISE_XNNPACK_INT8_PRODUCTS_INL_H
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace edgewise::xnnpack::HWY_NAMESPACE::int8_products {
#if HWY_TARGET == HWY_AVX2

namespace hn = hwy::HWY_NAMESPACE;
inline constexpr hn::ScalableTag<int16_t> kWords;
inline constexpr hn::ScalableTag<int32_t> kSums;
inline constexpr hn::Half<hn::ScalableTag<int8_t>> kBytes;  // as many as words
using Sums = hn::Vec<decltype(kSums)>;

inline constexpr size_t kRows =
    6;  // with two vectors of sums each, and what lies between, all registers
inline constexpr size_t kStep = 2;  // products that are added at a time
inline constexpr size_t kVectors = 2;
inline constexpr size_t kLanes = hn::MaxLanes(kSums);
inline constexpr size_t kColumns = kVectors * kLanes;
inline constexpr size_t kRowsOfBase = 4;
inline constexpr size_t kPanelStep = kColumns * kStep;  // weights

template <size_t kTileRows>
inline constexpr size_t kBasesOf = (kTileRows + kRowsOfBase - 1) / kRowsOfBase;

// Pointers to every kRowsOfBase-th row: from one, compilers keep a distance for each row and spill
// them.
template <size_t kBases>
HWY_INLINE void set_bases(const std::byte* first, size_t stride, const std::byte* (&a)[kBases]) {
#pragma GCC unroll 2
  for (size_t i = 0; i < kBases; ++i) {
    a[i] = first + i * kRowsOfBase * stride;
    __asm__("" : "+r"(a[i]));
  }
}

HWY_INLINE hn::Vec<decltype(kWords)> load_words(const int8_t* from) {
  return hn::PromoteTo(kWords, hn::LoadU(kBytes, from));
}
HWY_INLINE hn::Vec<decltype(kWords)> load_words(const int16_t* from) {
  return hn::LoadU(kWords, from);
}

// The products of `steps` steps are added, of rows of 16 bits and of a panel that has of each
// column kStep weights of 8 or 16; `a` and `panel` move past them.
template <size_t kTileRows, size_t kBases, typename Weight>
HWY_INLINE void add_steps(size_t steps, const std::byte* (&a)[kBases], size_t a_stride,
                          const Weight*& panel, Sums (&sum)[kTileRows][kVectors]) {
  for (; steps > 0; --steps) {
    hn::Vec<decltype(kWords)> b[kVectors];
#pragma GCC unroll 2
    for (size_t j = 0; j < kVectors; ++j) {
      b[j] = load_words(panel + j * kLanes * kStep);
    }
    panel += kPanelStep;
#pragma GCC unroll 8
    for (size_t i = 0; i < kTileRows; ++i) {
      int32_t two;
      std::memcpy(&two, a[i / kRowsOfBase] + i % kRowsOfBase * a_stride, sizeof(two));
      auto x = hn::BitCast(kWords, hn::Set(kSums, two));
      // One row after the other, or GCC begins with all at once, and spills what waits.
      __asm__ volatile("" : "+x"(x.raw));
#pragma GCC unroll 2
      for (size_t j = 0; j < kVectors; ++j) {
        sum[i][j] = hn::Add(sum[i][j], hn::WidenMulPairwiseAdd(kSums, x, b[j]));
      }
    }
#pragma GCC unroll 2
    for (size_t i = 0; i < kBases; ++i) a[i] += kStep * sizeof(int16_t);
  }
}

#endif
}  // namespace edgewise::xnnpack::HWY_NAMESPACE::int8_products
HWY_AFTER_NAMESPACE();

#endif
