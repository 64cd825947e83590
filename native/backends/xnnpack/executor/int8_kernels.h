// Matrix products and depthwise convolutions of 8-bit integers, where these are faster than
// XNNPACK's.
#pragma once

#include <cstddef>
#include <cstdint>

namespace edgewise::xnnpack {

inline constexpr size_t kInt8Columns = 16;  // of a panel

struct Int8Tile {
  size_t rows = 0;   // any number but 0
  size_t depth = 0;  // of a segment: a multiple of Int8Kernels::step
  // The parts of which a row of `a` consists, one after the other in the panel. Strides are bytes.
  size_t segments = 1;
  size_t segment_stride = 0;
  const std::byte* a = nullptr;  // as Int8Kernels::convert makes it
  size_t a_stride = 0;
  // Step by step, of each of kInt8Columns columns Int8Kernels::step weights.
  const int8_t* panel = nullptr;
  size_t panel_stride = 0;        // to the next one
  const int32_t* bias = nullptr;  // of all columns of the panels, as `scales`
  const float* scales = nullptr;  // from a sum to steps of the result
  size_t columns = 0;             // that are written, Int8Kernels::columns at most
  int8_t* c = nullptr;
  size_t c_stride = 0;
};

// Of the results. Rounded to the nearest, halves to even, as XNNPACK does.
struct Int8Range {
  int16_t zero_point = 0;
  int8_t min = INT8_MIN;
  int8_t max = INT8_MAX;
};

// A sum of two tensors, in XNNPACK's fixed-point arithmetic.
struct Int8Sum {
  int32_t a_multiplier = 0, b_multiplier = 0;
  int32_t bias = 0;
  int shift = 0;
  Int8Range range;
};

// One row of the results of a depthwise convolution, of kInt8Columns channels.
struct Int8DepthwiseRow {
  // For each row of the window: the image's, and bytes from a pixel to the next; 0 of padding.
  const int8_t* rows[5];
  size_t steps[5];
  // Pixels that windows pass over: of padding, of the image, and with padding behind it.
  size_t before = 0, count = 0, pixels = 0;
  int8_t zero = 0;  // of padding
  // If the window's last row is in a group of its own: with padding, a pixel kInt8Columns bytes.
  // kSparePixels more may be read.
  const int8_t* last = nullptr;
  size_t stride = 0;  // pixels from a window to the next
  size_t results = 0;
  const std::byte* weights = nullptr;  // see Int8DepthwiseKernels::together
  const int32_t* bias = nullptr;
  const float* scales = nullptr;
  int8_t* c = nullptr;
  size_t c_stride = 0;
  std::byte* scratch = nullptr;  // pixels * groups.of_pixel() * kGroupBytes, as a cache line

  static constexpr size_t kSparePixels = 3;
};

// Depthwise convolutions, where these are faster than XNNPACK's. Numbers of a channel that one
// instruction multiplies lie together: those of `together` rows of a pixel, then, if one row is
// left, its numbers of as many pixels. So do weights: of each pixel of the window the rows, then
// the rest of the last row, each in 64 bytes, channel by channel.
struct Int8DepthwiseKernels {
  const char* name;
  size_t together;
  bool swaps_fours;  // channels 4 to 7 of weights and 8 to 11 change places
  int offset;        // as that of Int8Kernels
  void (*run3)(const Int8DepthwiseRow& row, const Int8Range& range);  // 3x3
  void (*run5)(const Int8DepthwiseRow& row, const Int8Range& range);

  static constexpr size_t kGroupBytes = 64;
};

// How numbers of a square window lie together.
struct Int8DepthwiseGroups {
  size_t size, together;

  // Of each of the window's pixels: groups of rows.
  constexpr size_t of_rows() const {
    return has_last_row() ? size / together : (size + together - 1) / together;
  }
  constexpr bool has_last_row() const { return size % together == 1; }
  // Of the last row, if it has groups of its own.
  constexpr size_t of_last_row() const {
    return has_last_row() ? (size + together - 1) / together : 0;
  }
  constexpr size_t of_pixel() const { return of_rows() + (has_last_row() ? 1 : 0); }
  constexpr size_t all() const { return size * of_rows() + of_last_row(); }
  // Where the number of row `y` and column `x` is.
  struct Place {
    size_t group, slot;
  };
  constexpr Place place(size_t y, size_t x) const {
    if (has_last_row() && y == size - 1) {
      return {size * of_rows() + x / together, x % together};
    }
    return {x * of_rows() + y / together, y % together};
  }
};

struct Int8Kernels {
  const char* name;
  size_t rows;     // of a tile
  size_t columns;  // of its panels, one or two
  size_t step;     // products that are added at a time
  // Of fewer, XNNPACK stores results in less time than is gained. With few channels, of which it
  // multiplies a tap at a time, in part with nothing, a row of the window counts.
  size_t least_depth;
  size_t least_run;
  const char* depth_rule;
  bool needs_full_panels;  // to eight ninths, or XNNPACK is faster
  // Of a tile's left factor, as `multiply` reads it: bytes of a number, and what is added to it,
  // which the bias makes up for. `convert` makes these; null if they are the image's.
  size_t number_bytes;
  int offset;
  void (*convert)(const int8_t* from, size_t count, std::byte* to);
  void (*multiply)(const Int8Tile& tile, const Int8Range& range);
  // c = a + b. Null: XNNPACK's addition is used.
  void (*add)(const int8_t* a, const int8_t* b, size_t count, const Int8Sum& sum, int8_t* c);
};

// Of a Winograd convolution at one of its positions: c = a * panel. Strides are elements.
struct Int8WinogradTile {
  size_t rows = 0;   // any number but 0
  size_t depth = 0;  // a multiple of Int8WinogradKernels::step
  const int16_t* a = nullptr;
  size_t a_stride = 0;
  // Step by step, of each of kInt8Columns columns Int8WinogradKernels::step weights.
  const int16_t* panel = nullptr;
  int32_t* c = nullptr;
  size_t c_stride = 0;
};

// Winograd's F(2x2, 3x3) of integers. Transformed weights are sums of up to nine, divided by 4:
// kernels get four times these, which are integers, and divide results, which is exact. Numbers of
// channels are multiples of kInt8Columns.
struct Int8WinogradKernels {
  const char* name;
  size_t rows;  // of a tile
  size_t step;  // products that are added at a time
  // 16 pixels become the factors of 16 positions, `stride` elements apart.
  void (*transform_input)(const int8_t* const* pixels, size_t channels, int16_t* to, size_t stride);
  void (*multiply)(const Int8WinogradTile& tile);
  // 4 results, those that are not null, of the products at 16 positions, `stride` elements apart.
  void (*finish)(const int32_t* from, size_t stride, size_t channels, const int32_t* bias,
                 const float* scales, const Int8Range& range, int8_t* const* results);

  static constexpr size_t kIn = 4, kOut = 2, kPositions = kIn * kIn;
  // Of more, four times a sum of products would not fit 32 bits.
  static constexpr size_t kMostChannels = 3640;
};

// `rows` in blocks of `most` or less, of nearly equal size: run(rows of a block, the first one's
// first row, blocks).
template <typename Run>
void run_in_blocks(size_t rows, size_t most, Run run) {
  const size_t blocks = (rows + most - 1) / most;
  const size_t each = rows / blocks, larger = rows % blocks;
  if (larger > 0) run(each + 1, size_t{0}, larger);
  run(each, larger * (each + 1), blocks - larger);
}

// `blocks` of as many rows as the function is for, one after the other.
using Int8MultiplyRows = void (*)(const Int8Tile&, const Int8Range&, size_t blocks);

// [i] is for i + 1 rows.
template <size_t kRows>
void multiply_in_blocks(const Int8MultiplyRows (&by_rows)[kRows], const Int8Tile& all,
                        const Int8Range& range) {
  run_in_blocks(all.rows, kRows, [&](size_t rows, size_t first, size_t blocks) {
    Int8Tile part = all;
    part.a += first * part.a_stride;
    part.c += first * part.c_stride;
    by_rows[rows - 1](part, range, blocks);
  });
}

// Null where XNNPACK's are faster. On Arm: without dot products, with products of 8-bit matrices,
// and on cores that run in order; on x86: without AVX2, and with AVX-512 alone.
#if defined(__aarch64__) || defined(__x86_64__)
const Int8Kernels* int8_kernels();
const Int8DepthwiseKernels* int8_depthwise_kernels();
namespace vnni {
const Int8Kernels* int8_kernels();
const Int8DepthwiseKernels* int8_depthwise_kernels();
}  // namespace vnni
#else
constexpr const Int8Kernels* int8_kernels() { return nullptr; }
constexpr const Int8DepthwiseKernels* int8_depthwise_kernels() { return nullptr; }
#endif
// Null but with AVX2 alone: dot products of bytes compute the products that are saved in as little
// time.
#ifdef __x86_64__
const Int8WinogradKernels* int8_winograd_kernels();
#else
constexpr const Int8WinogradKernels* int8_winograd_kernels() { return nullptr; }
#endif

}  // namespace edgewise::xnnpack
