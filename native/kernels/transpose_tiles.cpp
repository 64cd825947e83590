#include "transpose_tiles.h"

#include <cstddef>

#define EDGEWISE_TARGETS_WITHOUT (HWY_SSE4 | HWY_AVX3)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/transpose_tiles.cpp"
#include "core/simd_foreach.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace edgewise {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR
template <typename Unit>
HWY_INLINE void transpose_tile(const Unit* from, int64_t from_step, Unit* to, int64_t to_step) {
  for (int64_t r = 0; r < kTransposedTile; ++r) {
    for (int64_t c = 0; c < kTransposedTile; ++c) to[r * to_step + c] = from[c * from_step + r];
  }
}
#else
// As many rows as a block of 16 bytes holds units: those of one half are interleaved with those of
// the other until each has a unit of every row. Vectors of two blocks hold two such squares.
template <class D>
HWY_INLINE void transpose_blocks(D d, hn::Vec<D>* rows) {
  constexpr size_t kSide = 16 / sizeof(hn::TFromD<D>);
  hn::Vec<D> next[kSide];
#pragma GCC unroll 4
  for (size_t width = 1; width < kSide; width *= 2) {
#pragma GCC unroll 8
    for (size_t k = 0; k < kSide / 2; ++k) {
      next[2 * k] = hn::InterleaveLower(d, rows[k], rows[k + kSide / 2]);
      next[2 * k + 1] = hn::InterleaveUpper(d, rows[k], rows[k + kSide / 2]);
    }
#pragma GCC unroll 16
    for (size_t k = 0; k < kSide; ++k) rows[k] = next[k];
  }
}

// Squares of a vector's side.
template <class D, typename Unit>
HWY_INLINE void transpose_square(D d, const Unit* from, int64_t from_step, Unit* to,
                                 int64_t to_step) {
  constexpr size_t kSide = 16 / sizeof(Unit), kBlocks = hn::MaxLanes(d) / kSide;
  static_assert(kBlocks == 1 || kBlocks == 2);
  hn::Vec<D> rows[kBlocks][kSide];
#pragma GCC unroll 2
  for (size_t b = 0; b < kBlocks; ++b) {
#pragma GCC unroll 16
    for (size_t k = 0; k < kSide; ++k) {
      rows[b][k] = hn::LoadU(d, from + static_cast<int64_t>(b * kSide + k) * from_step);
    }
    transpose_blocks(d, rows[b]);
  }
#pragma GCC unroll 16
  for (size_t k = 0; k < kSide; ++k) {
    Unit* first = to + static_cast<int64_t>(k) * to_step;
    if constexpr (kBlocks == 1) {
      hn::StoreU(rows[0][k], d, first);
    } else {
      hn::StoreU(hn::ConcatLowerLower(d, rows[1][k], rows[0][k]), d, first);
      hn::StoreU(hn::ConcatUpperUpper(d, rows[1][k], rows[0][k]), d,
                 first + static_cast<int64_t>(kSide) * to_step);
    }
  }
}

// One tile.
template <typename Unit>
HWY_INLINE void transpose_tile(const Unit* from, int64_t from_step, Unit* to, int64_t to_step) {
  // In two blocks of smaller units there are too few registers.
  const hn::CappedTag<Unit, (sizeof(Unit) >= 4 ? 32 : 16) / sizeof(Unit)> d;
  constexpr auto kSide = static_cast<int64_t>(hn::MaxLanes(d));
  for (int64_t r = 0; r < kTransposedTile; r += kSide) {
    for (int64_t c = 0; c < kTransposedTile; c += kSide) {
      const Unit* square = from + c * from_step + r;
      Unit* transposed = to + r * to_step + c;
      transpose_square(d, square, from_step, transposed, to_step);
    }
  }
}
#endif

template <typename Unit>
HWY_INLINE void transpose(const Unit* from, int64_t from_step, Unit* to, int64_t to_step,
                          int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; r += kTransposedTile) {
    for (int64_t c = 0; c < columns; c += kTransposedTile) {
      transpose_tile(from + c * from_step + r, from_step, to + r * to_step + c, to_step);
    }
  }
}

}  // namespace

void transpose_8(const uint8_t* from, int64_t from_step, uint8_t* to, int64_t to_step, int64_t rows,
                 int64_t columns) {
  transpose(from, from_step, to, to_step, rows, columns);
}
void transpose_16(const uint16_t* from, int64_t from_step, uint16_t* to, int64_t to_step,
                  int64_t rows, int64_t columns) {
  transpose(from, from_step, to, to_step, rows, columns);
}
void transpose_32(const uint32_t* from, int64_t from_step, uint32_t* to, int64_t to_step,
                  int64_t rows, int64_t columns) {
  transpose(from, from_step, to, to_step, rows, columns);
}
void transpose_64(const uint64_t* from, int64_t from_step, uint64_t* to, int64_t to_step,
                  int64_t rows, int64_t columns) {
  transpose(from, from_step, to, to_step, rows, columns);
}

}  // namespace HWY_NAMESPACE
}  // namespace edgewise
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace edgewise {

HWY_EXPORT(transpose_8);
HWY_EXPORT(transpose_16);
HWY_EXPORT(transpose_32);
HWY_EXPORT(transpose_64);

void transpose_tiles(const uint8_t* from, int64_t from_step, uint8_t* to, int64_t to_step,
                     int64_t rows, int64_t columns) {
  HWY_DYNAMIC_DISPATCH(transpose_8)(from, from_step, to, to_step, rows, columns);
}
void transpose_tiles(const uint16_t* from, int64_t from_step, uint16_t* to, int64_t to_step,
                     int64_t rows, int64_t columns) {
  HWY_DYNAMIC_DISPATCH(transpose_16)(from, from_step, to, to_step, rows, columns);
}
void transpose_tiles(const uint32_t* from, int64_t from_step, uint32_t* to, int64_t to_step,
                     int64_t rows, int64_t columns) {
  HWY_DYNAMIC_DISPATCH(transpose_32)(from, from_step, to, to_step, rows, columns);
}
void transpose_tiles(const uint64_t* from, int64_t from_step, uint64_t* to, int64_t to_step,
                     int64_t rows, int64_t columns) {
  HWY_DYNAMIC_DISPATCH(transpose_64)(from, from_step, to, to_step, rows, columns);
}

}  // namespace edgewise
#endif
