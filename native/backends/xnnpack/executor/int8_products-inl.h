// Products of 8-bit integers in vectors of AVX2, for files that are compiled once for each target.
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
inline constexpr size_t kVectors = 2;
inline constexpr size_t kLanes = hn::MaxLanes(kSums);
inline constexpr size_t kColumns = kVectors * kLanes;
inline constexpr size_t kRowsOfBase = 4;

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

// How products are computed: kStep of them at a time, of a row's numbers and of weights.

// Both factors become 16 bits on the way: no product saturates, as those of bytes do with AVX2.
struct WordProducts {
  using Number = int16_t;
  static constexpr size_t kStep = 2;
  static constexpr int kOffset = 0;  // what numbers are more than they stand for

  template <typename Weight>
  static HWY_INLINE auto load(const Weight* weights) {
    return load_words(weights);
  }
  static HWY_INLINE Sums add(Sums sum, Sums numbers, hn::Vec<decltype(kWords)> weights) {
    return hn::Add(sum, hn::WidenMulPairwiseAdd(kSums, hn::BitCast(kWords, numbers), weights));
  }
};

// Dot products of bytes: AVX-VNNI, which is none of Highway's targets. Numbers have no sign.
struct ByteProducts {
  using Number = uint8_t;
  static constexpr size_t kStep = 4;
  static constexpr int kOffset = 128;

  static HWY_INLINE Sums load(const int8_t* weights) {
    return hn::BitCast(kSums, hn::LoadU(hn::ScalableTag<int8_t>(), weights));
  }
  static HWY_INLINE Sums add(Sums sum, Sums numbers, Sums weights) {
#ifdef EDGEWISE_EMULATE_AVX_VNNI
    const auto low = hn::Set(kWords, 255), by = hn::BitCast(kWords, numbers),
               with = hn::BitCast(kWords, weights);
    const auto even = hn::ShiftRight<8>(hn::ShiftLeft<8>(with)), odd = hn::ShiftRight<8>(with);
    const auto high = hn::And(hn::ShiftRight<8>(by), low);
    return hn::Add(sum, hn::Add(hn::WidenMulPairwiseAdd(kSums, hn::And(by, low), even),
                                hn::WidenMulPairwiseAdd(kSums, high, odd)));
#else
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum.raw) : "x"(numbers.raw), "xm"(weights.raw));
    return sum;
#endif
  }
};

// Weights of a panel's step.
template <typename Products>
inline constexpr size_t kPanelStep = kColumns* Products::kStep;

// The products of `steps` steps are added, of rows and of a panel that has of each column kStep
// weights; `a` and `panel` move past them.
template <typename Products, size_t kTileRows, size_t kBases, typename Weight>
HWY_INLINE void add_steps(size_t steps, const std::byte* (&a)[kBases], size_t a_stride,
                          const Weight*& panel, Sums (&sum)[kTileRows][kVectors]) {
  constexpr size_t kStepBytes = Products::kStep * sizeof(typename Products::Number);
  for (; steps > 0; --steps) {
    decltype(Products::load(panel)) b[kVectors];
#pragma GCC unroll 2
    for (size_t j = 0; j < kVectors; ++j) {
      b[j] = Products::load(panel + j * kLanes * Products::kStep);
    }
    panel += kPanelStep<Products>;
#pragma GCC unroll 8
    for (size_t i = 0; i < kTileRows; ++i) {
      int32_t numbers;
      static_assert(sizeof(numbers) == kStepBytes);
      std::memcpy(&numbers, a[i / kRowsOfBase] + i % kRowsOfBase * a_stride, kStepBytes);
      Sums x = hn::Set(kSums, numbers);
      // One row after the other, or GCC begins with all at once, and spills what waits.
      __asm__ volatile("" : "+x"(x.raw));
#pragma GCC unroll 2
      for (size_t j = 0; j < kVectors; ++j) {
        sum[i][j] = Products::add(sum[i][j], x, b[j]);
      }
    }
#pragma GCC unroll 2
    for (size_t i = 0; i < kBases; ++i) a[i] += kStepBytes;
  }
}

#endif
}  // namespace edgewise::xnnpack::HWY_NAMESPACE::int8_products
HWY_AFTER_NAMESPACE();

#endif
