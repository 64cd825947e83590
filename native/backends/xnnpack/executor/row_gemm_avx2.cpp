// Rows quantized at run time times weights of 4 or 8 bits, by dot products of bytes (AVX-VNNI), or
// without: of 4 bits, pairs of products are added in 16 bits, which is exact for as many as a chunk
// has; of 8 bits, both factors become 16 bits.
#include "backends/xnnpack/executor/row_gemm_panels.h"

#ifdef EDGEWISE_HAS_ROW_GEMM_X86

#include <cstring>

#include "core/cpu_level.h"

#define EDGEWISE_TARGETS_WITHOUT (HWY_SSE4 | HWY_AVX3)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/xnnpack/executor/row_gemm_avx2.cpp"
#include "core/simd_foreach.h"
// Needs the target.
#include "backends/xnnpack/executor/int8_products-inl.h"
#include "core/simd_math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace edgewise::xnnpack {
namespace HWY_NAMESPACE {
#if HWY_TARGET == HWY_AVX2
namespace {

namespace hn = hwy::HWY_NAMESPACE;
constexpr hn::ScalableTag<uint8_t> kNibbles;
constexpr hn::ScalableTag<int8_t> kBytes;
constexpr hn::ScalableTag<int16_t> kPairs;
constexpr hn::ScalableTag<int32_t> kSums;
constexpr hn::ScalableTag<float> kFloats;
using Pairs = hn::Vec<decltype(kPairs)>;
using Sums = hn::Vec<decltype(kSums)>;
using Floats = hn::Vec<decltype(kFloats)>;

constexpr size_t kLanes = 8;  // columns of a vector
constexpr size_t kVectorBytes = kLanes * sizeof(uint32_t);

// ---- rows

QuantizedRow row_of(const float* x, size_t count) {
  const Floats zero = hn::Zero(kFloats);
  Floats min = zero, max = zero, zeros = zero;
  const auto add = [&](Floats some) HWY_ATTR {
    // NaN is left out: the second operand is taken then.
    min = hn::Min(some, min);
    max = hn::Max(some, max);
    zeros = hn::MulAdd(some, zero, zeros);
  };
  size_t at = 0;
  for (; at + kLanes <= count; at += kLanes) add(hn::LoadU(kFloats, x + at));
  add(hn::LoadN(kFloats, x + at, count - at));
  return quantized_row(hn::ReduceMin(kFloats, min), hn::ReduceMax(kFloats, max),
                       hn::ReduceSum(kFloats, zeros));
}

// Numbers as steps from -128 to 127, once they are bytes.
struct Quantizer {
  explicit Quantizer(const QuantizedRow& row)
      : factor(hn::Set(kFloats, 1 / row.scale)),
        zero(hn::Set(kPairs, static_cast<int16_t>(row.zero_point))) {}

  HWY_INLINE Sums steps(const float* x) const {
    const Floats most = hn::Set(kFloats, INT16_MAX);
    return hn::NearestInt(hn::Min(hn::Mul(hn::LoadU(kFloats, x), factor), most));
  }
  // Of 16 bits, of two vectors of numbers.
  HWY_INLINE Pairs shifted(const float* x) const {
    return hn::SaturatedAdd(hn::OrderedDemote2To(kPairs, steps(x), steps(x + kLanes)), zero);
  }

  const Floats factor;
  const Pairs zero;
};

// ---- rows for weights of 4 bits
//
// Chunks of 32 numbers q, of eight those with even indices first, for low nibbles are multiplied
// with them; then -8 times their sum, as weights are nibble - 8. Behind the last number zeros.
//
// A lane of 16 bits adds 16 products of a nibble and q: 16 * 15 * -128 fits.

constexpr size_t kChunk = 32;
constexpr size_t kChunkWords = kChunk / kWord;
constexpr size_t kChunkBytes = kChunk + sizeof(int32_t);

size_t stride_of(size_t depth) { return row_stride(divide_up(depth, kChunk) * kChunkBytes); }

size_t rows_bytes(size_t rows, size_t depth) {
  // Room for a row more, of anything, where their number is odd.
  return parameters_bytes(rows) + divide_up(rows, 2) * 2 * stride_of(depth);
}

void quantize_chunk(const float* x, size_t count, const QuantizedRow& row, std::byte* to) {
  alignas(kCacheLine) float rest[kChunk] = {};
  if (count < kChunk) {
    std::copy_n(x, count, rest);
    x = rest;
  }
  const Quantizer quantizer(row);
  auto q = hn::OrderedDemote2To(kBytes, quantizer.shifted(x), quantizer.shifted(x + 2 * kLanes));
  if (count < kChunk) q = hn::IfThenElseZero(hn::FirstN(kBytes, count), q);
  const auto pairs = hn::SatWidenMulPairwiseAdd(kPairs, hn::Set(kNibbles, 1), q);
  const Sums sums = hn::WidenMulPairwiseAdd(kSums, pairs, hn::Set(kPairs, 1));
  const int32_t sum = -8 * hn::ReduceSum(kSums, sums);
  const auto order =
      hn::Dup128VecFromValues(kBytes, 0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
  hn::StoreU(hn::TableLookupBytes(q, order), kBytes, reinterpret_cast<int8_t*>(to));
  std::memcpy(to + kChunk, &sum, sizeof(sum));
}

void quantize(const float* x, size_t rows, size_t depth, size_t row, std::byte* to) {
  QuantizedRow* parameters = reinterpret_cast<QuantizedRow*>(to) + row;
  *parameters = row_of(x, depth);
  // An odd row's neighbour is computed for nothing: with the same, in what is left of a cache line.
  if (row + 1 == rows && rows % 2 == 1) parameters[1] = *parameters;
  to += parameters_bytes(rows) + row * stride_of(depth);
  for (size_t at = 0; at < depth; at += kChunk, to += kChunkBytes) {
    quantize_chunk(x + at, std::min(kChunk, depth - at), *parameters, to);
  }
}

// ---- products with weights of 4 bits

constexpr size_t kRows = 6;  // of a tile whose sums are in registers

HWY_INLINE Sums four_at(const std::byte* a) {
  int32_t four;
  std::memcpy(&four, a, sizeof(four));
  return hn::Set(kSums, four);
}

// Weights that a row alone reads; several rows read them again.
enum class Prefetch : uint8_t { kNot, kToCaches, kPastCaches };

template <Prefetch kPrefetch>
HWY_INLINE void prefetch(const std::byte* from) {
  constexpr size_t kAhead = 4096;  // bytes from what is read
  if constexpr (kPrefetch == Prefetch::kToCaches) __builtin_prefetch(from + kAhead, 0, 3);
  if constexpr (kPrefetch == Prefetch::kPastCaches) __builtin_prefetch(from + kAhead, 0, 0);
}

template <size_t kTileRows, size_t kWidth, typename Vector>
HWY_INLINE void clear(Vector zero, Vector (&sum)[kTileRows][kWidth]) {
#pragma GCC unroll 8
  for (size_t i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 4
    for (size_t j = 0; j < kWidth; ++j) sum[i][j] = zero;
  }
}

// How products of nibbles and q are added: in 16 bits, then of a chunk in 32, or by dot products.
// `less`: -8 times the sum of q.
struct InPairs {
  using Sum = Pairs;
  static HWY_INLINE Sum start(Sums /*less*/) { return hn::Zero(kPairs); }
  static HWY_INLINE Sum add(Sum sum, hn::Vec<decltype(kNibbles)> nibbles, Sums q) {
    return hn::Add(sum, hn::SatWidenMulPairwiseAdd(kPairs, nibbles, hn::BitCast(kBytes, q)));
  }
  static HWY_INLINE Sums of_chunk(Sum sum, Sums less) {
    return hn::Add(hn::WidenMulPairwiseAdd(kSums, sum, hn::Set(kPairs, 1)), less);
  }
};

struct InDots {
  using Sum = Sums;
  static HWY_INLINE Sum start(Sums less) { return less; }
  static HWY_INLINE Sum add(Sum sum, hn::Vec<decltype(kNibbles)> nibbles, Sums q) {
    return int8_products::ByteProducts::add(sum, hn::BitCast(kSums, nibbles), q);
  }
  static HWY_INLINE Sums of_chunk(Sum sum, Sums /*less*/) { return sum; }
};

// Sums of some rows of a tile, for kWidth vectors of columns.
template <typename Add, size_t kTileRows, size_t kWidth, Prefetch kPrefetch>
struct Tile {
  const std::byte* a;  // the first row's chunk
  size_t stride;
  const std::byte* weights;  // the first column's word

  HWY_INLINE void add_word(size_t word, typename Add::Sum (&some)[kTileRows][kWidth]) {
    const auto low = hn::Set(kNibbles, 15);
    hn::Vec<decltype(kNibbles)> even[kWidth], odd[kWidth];
#pragma GCC unroll 4
    for (size_t j = 0; j < kWidth; ++j) {
      const std::byte* from = weights + j * kVectorBytes;
      if (j % 2 == 0) prefetch<kPrefetch>(from);
      const auto both = hn::LoadU(kNibbles, reinterpret_cast<const uint8_t*>(from));
      even[j] = hn::And(both, low);
      odd[j] = hn::And(hn::BitCast(kNibbles, hn::ShiftRight<4>(hn::BitCast(kPairs, both))), low);
    }
#pragma GCC unroll 8
    for (size_t i = 0; i < kTileRows; ++i) {
      const std::byte* row = a + i * stride + word * kWord;
      const Sums with_even = four_at(row), with_odd = four_at(row + kWord / 2);
#pragma GCC unroll 4
      for (size_t j = 0; j < kWidth; ++j) {
        some[i][j] = Add::add(Add::add(some[i][j], even[j], with_even), odd[j], with_odd);
        // Or GCC adds all at the end, and spills what waits.
        __asm__("" : "+x"(some[i][j].raw));
      }
    }
    // Columns that another tile has lie between those of two words.
    weights += kWordOfBytes;
  }

  // A chunk, of so many words: kChunkWords, but for the last one. Moves on behind it.
  HWY_INLINE void add(size_t words, Sums (&sum)[kTileRows][kWidth]) {
    typename Add::Sum some[kTileRows][kWidth];
#pragma GCC unroll 8
    for (size_t i = 0; i < kTileRows; ++i) {
      const auto start = Add::start(four_at(a + i * stride + kChunk));
#pragma GCC unroll 4
      for (size_t j = 0; j < kWidth; ++j) some[i][j] = start;
    }
    if (words == kChunkWords) {
#pragma GCC unroll 4
      for (size_t word = 0; word < kChunkWords; ++word) add_word(word, some);
    } else {
#pragma GCC unroll 1
      for (size_t word = 0; word < words; ++word) add_word(word, some);
    }
#pragma GCC unroll 8
    for (size_t i = 0; i < kTileRows; ++i) {
      const Sums less = four_at(a + i * stride + kChunk);
#pragma GCC unroll 4
      for (size_t j = 0; j < kWidth; ++j) {
        sum[i][j] = hn::Add(sum[i][j], Add::of_chunk(some[i][j], less));
      }
    }
    a += kChunkBytes;
  }

  // Of all of `depth`, for weights that have one scale.
  HWY_INLINE void add_all(size_t depth, Sums (&sum)[kTileRows][kWidth]) {
    for (size_t words = divide_up(depth, kWord), count; words > 0; words -= count) {
      add(count = std::min(words, kChunkWords), sum);
    }
  }
};

// Results are scale * sum + bias, within bounds. `column`: the first one.
template <size_t kTileRows, size_t kWidth>
HWY_INLINE void store(const RowGemmTile& tile, const Part& part, size_t rows, size_t column,
                      const float* bias, Floats (&sum)[kTileRows][kWidth]) {
  const Floats min = hn::Set(kFloats, tile.min), max = hn::Set(kFloats, tile.max);
#pragma GCC unroll 8
  for (size_t i = 0; i < kTileRows; ++i) {
    if (i == rows) break;
    const Floats scale = hn::Set(kFloats, part.row[i].scale);
#pragma GCC unroll 4
    for (size_t j = 0; j < kWidth; ++j) {
      const size_t first = column + j * kLanes;
      if (first >= tile.columns) break;
      Floats x = hn::MulAdd(sum[i][j], scale, hn::LoadU(kFloats, bias + first));
      x = simd::HWY_NAMESPACE::clamp(x, min, max);
      hn::StoreN(x, kFloats, part.c + i * tile.c_stride + first, tile.columns - first);
    }
  }
}

// kIsChunk: a block is a chunk, so that its sums stay in registers.
template <typename Add, size_t kTileRows, size_t kWidth, bool kIsChunk,
          Prefetch kPrefetch = Prefetch::kNot>
void multiply_blocks(const RowGemmTile& tile, const Part& part, size_t rows, size_t column) {
  const auto* header = reinterpret_cast<const float*>(tile.panel);
  Floats total[kTileRows][kWidth];
#pragma GCC unroll 8
  for (size_t i = 0; i < kTileRows; ++i) {
    const Floats zero = hn::Set(kFloats, static_cast<float>(-part.row[i].zero_point));
#pragma GCC unroll 4
    for (size_t j = 0; j < kWidth; ++j) {
      total[i][j] = hn::Mul(zero, hn::LoadU(kFloats, header + column + j * kLanes));
    }
  }
  Tile<Add, kTileRows, kWidth, kPrefetch> at = {
      part.a, part.stride, tile.panel + kBlocksHeader + column * sizeof(uint32_t)};
  const size_t chunks = kIsChunk ? 1 : tile.block / kChunk;
  for (size_t blocks = tile.depth / tile.block; blocks > 0; --blocks) {
    Sums sum[kTileRows][kWidth];
    clear(hn::Zero(kSums), sum);
    for (size_t i = 0; i < chunks; ++i) at.add(kChunkWords, sum);
    const std::byte* scales = at.weights - column * sizeof(uint32_t);
#pragma GCC unroll 4
    for (size_t j = 0; j < kWidth; ++j) {
      const hn::Rebind<uint16_t, decltype(kFloats)> halves;
      const auto bits =
          hn::LoadU(halves, reinterpret_cast<const uint16_t*>(scales) + column + j * kLanes);
      const hn::RebindToUnsigned<decltype(kFloats)> words;
      const Floats scale = hn::BitCast(kFloats, hn::ShiftLeft<16>(hn::PromoteTo(words, bits)));
#pragma GCC unroll 8
      for (size_t i = 0; i < kTileRows; ++i) {
        total[i][j] = hn::MulAdd(hn::ConvertTo(kFloats, sum[i][j]), scale, total[i][j]);
      }
    }
    at.weights += kRowGemmColumns * sizeof(uint16_t);
  }
  store(tile, part, rows, column, header + kRowGemmColumns, total);
}

// Of weights that have one scale: sums begin with what rows' zero points make of the columns' sums.
// `offset`: what was added to q.
template <size_t kTileRows, size_t kWidth>
HWY_INLINE void start_channels(const RowGemmTile& tile, const Part& part, size_t column, int offset,
                               Sums (&sum)[kTileRows][kWidth]) {
  const auto* of_weights = reinterpret_cast<const int32_t*>(tile.panel) + column;
#pragma GCC unroll 8
  for (size_t i = 0; i < kTileRows; ++i) {
    const Sums zero = hn::Set(kSums, -(part.row[i].zero_point + offset));
#pragma GCC unroll 4
    for (size_t j = 0; j < kWidth; ++j) {
      sum[i][j] = hn::Mul(zero, hn::LoadU(kSums, of_weights + j * kLanes));
    }
  }
}

template <size_t kTileRows, size_t kWidth>
HWY_INLINE void store_channels(const RowGemmTile& tile, const Part& part, size_t rows,
                               size_t column, const Sums (&sum)[kTileRows][kWidth]) {
  const auto* header = reinterpret_cast<const float*>(tile.panel) + kRowGemmColumns;
  Floats total[kTileRows][kWidth];
#pragma GCC unroll 4
  for (size_t j = 0; j < kWidth; ++j) {
    const Floats scale = hn::LoadU(kFloats, header + column + j * kLanes);
#pragma GCC unroll 8
    for (size_t i = 0; i < kTileRows; ++i) {
      total[i][j] = hn::Mul(hn::ConvertTo(kFloats, sum[i][j]), scale);
    }
  }
  store(tile, part, rows, column, header + kRowGemmColumns, total);
}

template <typename Add, size_t kTileRows, size_t kWidth, Prefetch kPrefetch = Prefetch::kNot>
void multiply_channels(const RowGemmTile& tile, const Part& part, size_t rows, size_t column) {
  Sums sum[kTileRows][kWidth];
  start_channels(tile, part, column, 0, sum);
  Tile<Add, kTileRows, kWidth, kPrefetch> at = {
      part.a, part.stride, tile.panel + kChannelsHeader + column * sizeof(uint32_t)};
  at.add_all(tile.depth, sum);
  store_channels(tile, part, rows, column, sum);
}

using Multiply = void (*)(const RowGemmTile&, const Part&, size_t rows, size_t column);

// A single row has all columns at once, for its time is that of reading weights; several have one
// vector of columns. Of 1, 2, 4 and 6 rows:
constexpr size_t kWidths[] = {4, 2, 1, 1};
template <typename Add, bool kIsChunk>
constexpr Multiply kBlocks[] = {
    multiply_blocks<Add, 1, 4, kIsChunk, Prefetch::kToCaches>, multiply_blocks<Add, 2, 2, kIsChunk>,
    multiply_blocks<Add, 4, 1, kIsChunk>, multiply_blocks<Add, 6, 1, kIsChunk>};
template <typename Add>
constexpr Multiply kChannels[] = {multiply_channels<Add, 1, 4, Prefetch::kToCaches>,
                                  multiply_channels<Add, 2, 2>, multiply_channels<Add, 4, 1>,
                                  multiply_channels<Add, 6, 1>};

template <typename Add>
Multiply kernel_of(const RowGemmTile& tile, size_t index) {
  const bool is_channels = tile.weights != DataType::kQbint4, is_chunk = tile.block == kChunk;
  if (index == 0 && !tile.is_cached) {
    constexpr Prefetch kPast = Prefetch::kPastCaches;
    return is_channels ? multiply_channels<Add, 1, 4, kPast>
           : is_chunk  ? multiply_blocks<Add, 1, 4, true, kPast>
                       : multiply_blocks<Add, 1, 4, false, kPast>;
  }
  return (is_channels ? kChannels<Add>
          : is_chunk  ? kBlocks<Add, true>
                      : kBlocks<Add, false>)[index];
}

template <typename Add>
void multiply(const RowGemmTile& tile) {
  for_each_part(tile, stride_of(tile.depth), kRows, 2, [&](const Part& part, size_t rows) {
    const size_t index = rows == 1 ? 0 : divide_up(rows, 2);
    const Multiply kernel = kernel_of<Add>(tile, index);
    const size_t width = kWidths[index] * kLanes;
    for (size_t column = 0; column < tile.columns; column += width) {
      kernel(tile, part, rows, column);
    }
  });
}

bool takes(const GraphValue& filter) {
  if (filter.type == DataType::kQcint8 || !fits_panels(filter)) return false;
  return filter.type != DataType::kQbint4 || filter.block_size % kChunk == 0;
}

void pack(const GraphValue& filter, const float* bias, size_t first, std::byte* panel) {
  pack_panel(filter, bias, first, Nibbles::kUnsigned, 1, panel);
}

template <typename Add>
constexpr RowGemmKernels kernels(const char* name) {
  return {.name = name,
          .takes = takes,
          .panel_bytes = panel_bytes,
          .pack = pack,
          .rows_bytes = rows_bytes,
          .quantize = quantize,
          .multiply = multiply<Add>};
}

// ---- weights of 8 bits
//
// Rows are numbers of 16 bits, or for dot products of 8 without a sign. Weights behind the last one
// are zero, up to a whole step.

namespace of_bytes {

using int8_products::ByteProducts, int8_products::kColumns, int8_products::WordProducts;

template <typename Products>
size_t steps_of(size_t depth) {
  return divide_up(depth, Products::kStep);
}
template <typename Products>
size_t stride_of(size_t depth) {
  return row_stride(depth * sizeof(typename Products::Number));
}

template <typename Products>
size_t rows_bytes(size_t rows, size_t depth) {
  return parameters_bytes(rows) + rows * stride_of<Products>(depth);
}

HWY_INLINE void store(Pairs q, int16_t* to) {
  q = hn::Min(hn::Max(q, hn::Set(kPairs, INT8_MIN)), hn::Set(kPairs, INT8_MAX));
  hn::StoreU(q, kPairs, to);
}
HWY_INLINE void store(Pairs q, uint8_t* to) {
  const hn::Half<decltype(kBytes)> half;
  const auto offset = hn::Set(half, static_cast<int8_t>(ByteProducts::kOffset));
  hn::StoreU(hn::Xor(hn::DemoteTo(half, q), offset), half, reinterpret_cast<int8_t*>(to));
}

template <typename Products>
void quantize(const float* x, size_t rows, size_t depth, size_t row, std::byte* to) {
  QuantizedRow* parameters = reinterpret_cast<QuantizedRow*>(to) + row;
  *parameters = row_of(x, depth);
  const Quantizer quantizer(*parameters);
  to += parameters_bytes(rows) + row * stride_of<Products>(depth);
  auto* numbers = reinterpret_cast<typename Products::Number*>(to);
  constexpr size_t kAtOnce = 2 * kLanes;
  size_t at = 0;
  for (; at + kAtOnce <= depth; at += kAtOnce) store(quantizer.shifted(x + at), numbers + at);
  if (at == depth) return;
  float rest[kAtOnce] = {};
  std::copy_n(x + at, depth - at, rest);
  // Up to the next row or before, which is a cache line's beginning.
  store(quantizer.shifted(rest), numbers + at);
}

template <typename Products, size_t kTileRows, Prefetch kPrefetch = Prefetch::kNot>
void multiply_tile(const RowGemmTile& tile, const Part& part, size_t column) {
  Sums sum[kTileRows][int8_products::kVectors];
  start_channels(tile, part, column, Products::kOffset, sum);
  const std::byte* a[int8_products::kBasesOf<kTileRows>];
  int8_products::set_bases(part.a, part.stride, a);
  size_t steps = steps_of<Products>(tile.depth);
  const std::byte* panel = tile.panel + kChannelsHeader + column * steps * Products::kStep;
  const auto* weights = reinterpret_cast<const int8_t*>(panel);
  if constexpr (kPrefetch != Prefetch::kNot) {
    constexpr size_t kOfCacheLine = kCacheLine / int8_products::kPanelStep<Products>;
    for (; steps >= kOfCacheLine; steps -= kOfCacheLine) {
      prefetch<kPrefetch>(reinterpret_cast<const std::byte*>(weights));
      int8_products::add_steps<Products>(kOfCacheLine, a, part.stride, weights, sum);
    }
  }
  int8_products::add_steps<Products>(steps, a, part.stride, weights, sum);
  store_channels(tile, part, kTileRows, column, sum);
}

using MultiplyTile = void (*)(const RowGemmTile&, const Part&, size_t column);

// [i] is for i + 1 rows.
template <typename Products>
constexpr MultiplyTile kByRows[] = {multiply_tile<Products, 1, Prefetch::kToCaches>,
                                    multiply_tile<Products, 2>,
                                    multiply_tile<Products, 3>,
                                    multiply_tile<Products, 4>,
                                    multiply_tile<Products, 5>,
                                    multiply_tile<Products, int8_products::kRows>};

template <typename Products>
void multiply(const RowGemmTile& tile) {
  const auto multiply_part = [&](const Part& part, size_t rows) {
    const MultiplyTile kernel = rows == 1 && !tile.is_cached
                                    ? multiply_tile<Products, 1, Prefetch::kPastCaches>
                                    : kByRows<Products>[rows - 1];
    for (size_t column = 0; column < tile.columns; column += kColumns) kernel(tile, part, column);
  };
  for_each_part(tile, stride_of<Products>(tile.depth), int8_products::kRows, 1, multiply_part);
}

bool takes(const GraphValue& filter) {
  return filter.type == DataType::kQcint8 && fits_panels(filter);
}

template <typename Products>
size_t panel_bytes(const GraphValue& filter) {
  return kChannelsHeader + steps_of<Products>(filter.shape[1]) * Products::kStep * kRowGemmColumns;
}

template <typename Products>
void pack(const GraphValue& filter, const float* bias, size_t first, std::byte* panel) {
  constexpr size_t kStep = Products::kStep;
  const size_t depth = filter.shape[1],
               columns = std::min(kRowGemmColumns, filter.shape[0] - first);
  const size_t padded = steps_of<Products>(depth) * kStep;
  std::memset(panel, 0, of_bytes::panel_bytes<Products>(filter));
  int32_t sums[kRowGemmColumns] = {};
  for (size_t column = 0; column < columns; ++column) {
    const auto* from =
        reinterpret_cast<const int8_t*>(filter.data.bytes.data()) + (first + column) * depth;
    std::byte* to =
        panel + kChannelsHeader + column / kColumns * kColumns * padded + column % kColumns * kStep;
    for (size_t i = 0; i < depth; ++i) sums[column] += from[i];
    size_t i = 0;
    for (; i + kStep <= depth; i += kStep, to += int8_products::kPanelStep<Products>) {
      std::memcpy(to, from + i, kStep);
    }
    std::memcpy(to, from + i, depth - i);
  }
  pack_channels_header(filter, bias, first, sums, panel);
}

template <typename Products>
constexpr RowGemmKernels kernels(const char* name) {
  return {.name = name,
          .takes = takes,
          .panel_bytes = panel_bytes<Products>,
          .pack = pack<Products>,
          .rows_bytes = rows_bytes<Products>,
          .quantize = quantize<Products>,
          .multiply = multiply<Products>};
}

}  // namespace of_bytes

constexpr RowGemmKernels kOfNibbles = kernels<InPairs>("avx2"),
                         kOfNibblesByDots = kernels<InDots>("avxvnni");
constexpr RowGemmKernels kOfBytes = of_bytes::kernels<int8_products::WordProducts>("avx2"),
                         kOfBytesByDots = of_bytes::kernels<int8_products::ByteProducts>("avxvnni");

}  // namespace

const RowGemmKernels* row_gemm_kernels_of_target(DataType weights, bool has_dot_products) {
  if (weights == DataType::kQcint8) return has_dot_products ? &kOfBytesByDots : &kOfBytes;
  return has_dot_products ? &kOfNibblesByDots : &kOfNibbles;
}
#else
const RowGemmKernels* row_gemm_kernels_of_target(DataType, bool) { return nullptr; }
#endif

}  // namespace HWY_NAMESPACE
}  // namespace edgewise::xnnpack
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace edgewise::xnnpack {
namespace {

HWY_EXPORT(row_gemm_kernels_of_target);

}  // namespace

const RowGemmKernels* row_gemm_kernels_avx2(DataType weights) {
  const bool has_dot_products = cpu_level().extra == CpuLevel::kAvxVnni;
  return HWY_DYNAMIC_DISPATCH(row_gemm_kernels_of_target)(weights, has_dot_products);
}

}  // namespace edgewise::xnnpack
#endif

#endif
