// Included by a file for each vector unit, which sets these and the compiler's flags:
//   EDGEWISE_KERNELS       name of the table that is defined
//   EDGEWISE_KERNELS_NAME  its name as text
//   EDGEWISE_LANES         floats in a vector
//   EDGEWISE_ROWS          rows of a GEMM tile; it is two vectors wide
// Nothing but the table is visible outside, and no library's inline function is used: the linker
// could take the copy compiled here for all other files, and their CPU might not run it.
#include <stddef.h>
#include <stdint.h>

#include "backends/xnnpack/executor/float_kernels.h"

namespace edgewise::xnnpack {
namespace {

constexpr size_t kLanes = EDGEWISE_LANES;
constexpr size_t kRows = EDGEWISE_ROWS;
constexpr size_t kVectors = 2;
constexpr size_t kColumns = kVectors * kLanes;

typedef float Vector __attribute__((vector_size(kLanes * sizeof(float))));
typedef int32_t IntVector __attribute__((vector_size(kLanes * sizeof(float))));
typedef float Unaligned __attribute__((vector_size(kLanes * sizeof(float)), aligned(4), may_alias));

#define EDGEWISE_INLINE inline __attribute__((always_inline))

template <typename T>
struct Lanes {
  static constexpr size_t kCount = 1;
  static EDGEWISE_INLINE T load(const float* from) { return *from; }
  static EDGEWISE_INLINE void store(float* to, T x) { *to = x; }
};
template <>
struct Lanes<Vector> {
  static constexpr size_t kCount = kLanes;
  static EDGEWISE_INLINE Vector load(const float* from) {
    return *reinterpret_cast<const Unaligned*>(from);
  }
  static EDGEWISE_INLINE void store(float* to, Vector x) { *reinterpret_cast<Unaligned*>(to) = x; }
};

// NaN stays NaN.
template <typename T>
EDGEWISE_INLINE T clamp(T x, T min, T max) {
  x = min > x ? min : x;
  return max < x ? max : x;
}

EDGEWISE_INLINE Vector broadcast(float x) { return x - Vector{}; }

// ---- GEMM

constexpr size_t kRowsOfBase = 4;

// `kUsed` vectors of the panel's `kVectors`.
template <size_t kTileRows, size_t kUsed>
void multiply_rows(const GemmTile& tile, const Finish* finish) {
  Vector sum[kTileRows][kUsed];
  Vector start[kUsed] = {};
  if (finish != nullptr) {
#pragma GCC unroll 2
    for (size_t j = 0; j < kUsed; ++j) start[j] = Lanes<Vector>::load(finish->bias + j * kLanes);
  }
#pragma GCC unroll 16
  for (size_t i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 2
    for (size_t j = 0; j < kUsed; ++j) sum[i][j] = start[j];
  }
  // Rows are addressed from few pointers: from one, compilers keep a distance for each and spill
  // them; that they belong together is hidden from them.
  constexpr size_t kBases = (kTileRows + kRowsOfBase - 1) / kRowsOfBase;
  const size_t a_stride = tile.a_stride;
  const float* a[kBases];
#pragma GCC unroll 8
  for (size_t i = 0; i < kBases; ++i) {
    a[i] = tile.a + i * kRowsOfBase * a_stride;
    __asm__("" : "+r"(a[i]));
  }
  const float* panel = tile.panel;
  const size_t panel_stride = tile.panel_stride;
  const char* ahead = tile.ahead;
  const size_t ahead_step = tile.ahead_step;
  for (size_t p = tile.depth; p > 0; --p) {
    Vector b[kUsed];
#pragma GCC unroll 2
    for (size_t j = 0; j < kUsed; ++j) b[j] = Lanes<Vector>::load(panel + j * kLanes);
    panel += panel_stride;
    __builtin_prefetch(ahead, 0, 2);
    ahead += ahead_step;
#pragma GCC unroll 16
    for (size_t i = 0; i < kTileRows; ++i) {
      const Vector x = broadcast(a[i / kRowsOfBase][i % kRowsOfBase * a_stride]);
#pragma GCC unroll 2
      for (size_t j = 0; j < kUsed; ++j) sum[i][j] += x * b[j];
    }
#pragma GCC unroll 8
    for (size_t i = 0; i < kBases; ++i) ++a[i];
  }
  float* c = tile.c;
  const size_t c_stride = tile.c_stride;
  if (finish == nullptr) {
#pragma GCC unroll 16
    for (size_t i = 0; i < kTileRows; ++i, c += c_stride) {
#pragma GCC unroll 2
      for (size_t j = 0; j < kUsed; ++j) Lanes<Vector>::store(c + j * kLanes, sum[i][j]);
    }
    return;
  }
  if (finish->residual != nullptr) {
    const float* residual = finish->residual;
    const size_t residual_stride = finish->residual_stride;
#pragma GCC unroll 16
    for (size_t i = 0; i < kTileRows; ++i, residual += residual_stride) {
#pragma GCC unroll 2
      for (size_t j = 0; j < kUsed; ++j) sum[i][j] += Lanes<Vector>::load(residual + j * kLanes);
    }
  }
  const Vector min = broadcast(finish->min), max = broadcast(finish->max);
#pragma GCC unroll 16
  for (size_t i = 0; i < kTileRows; ++i, c += c_stride) {
#pragma GCC unroll 2
    for (size_t j = 0; j < kUsed; ++j) {
      Lanes<Vector>::store(c + j * kLanes, clamp(sum[i][j], min, max));
    }
  }
}

template <size_t kUsed, size_t kTileRows = kRows>
EDGEWISE_INLINE void multiply_any(const GemmTile& tile, const Finish* finish) {
  if constexpr (kTileRows > 0) {
    if (tile.rows == kTileRows) return multiply_rows<kTileRows, kUsed>(tile, finish);
    multiply_any<kUsed, kTileRows - 1>(tile, finish);
  }
}

void multiply(const GemmTile& tile, const Finish* finish) {
  if (tile.columns <= kLanes) {
    multiply_any<1>(tile, finish);
  } else {
    multiply_any<kVectors>(tile, finish);
  }
}

// ---- Winograd

template <typename T>
EDGEWISE_INLINE void input_lanes(const float* const* pixels, size_t at, float* out,
                                 size_t out_stride) {
  T rows[kTileIn][kTileIn];
#pragma GCC unroll 4
  for (size_t j = 0; j < kTileIn; ++j) {
    const T x0 = Lanes<T>::load(pixels[j] + at), x1 = Lanes<T>::load(pixels[4 + j] + at);
    const T x2 = Lanes<T>::load(pixels[8 + j] + at), x3 = Lanes<T>::load(pixels[12 + j] + at);
    rows[0][j] = x0 - x2;
    rows[1][j] = x1 + x2;
    rows[2][j] = x2 - x1;
    rows[3][j] = x1 - x3;
  }
#pragma GCC unroll 4
  for (size_t i = 0; i < kTileIn; ++i) {
    float* to = out + at + i * kTileIn * out_stride;
    Lanes<T>::store(to, rows[i][0] - rows[i][2]);
    Lanes<T>::store(to + out_stride, rows[i][1] + rows[i][2]);
    Lanes<T>::store(to + 2 * out_stride, rows[i][2] - rows[i][1]);
    Lanes<T>::store(to + 3 * out_stride, rows[i][1] - rows[i][3]);
  }
}

void transform_input(const float* const* pixels, size_t channels, float* out, size_t out_stride) {
  size_t at = 0;
  for (; at + kLanes <= channels; at += kLanes) input_lanes<Vector>(pixels, at, out, out_stride);
  for (; at < channels; ++at) input_lanes<float>(pixels, at, out, out_stride);
}

template <typename T>
EDGEWISE_INLINE void output_lanes(const float* in, size_t in_stride, size_t at, const float* bias,
                                  const float* const* residual, T min, T max,
                                  float* const* pixels) {
  T rows[kTileOut][kTileIn];
#pragma GCC unroll 4
  for (size_t j = 0; j < kTileIn; ++j) {
    const float* from = in + at + j * in_stride;
    const T x0 = Lanes<T>::load(from), x1 = Lanes<T>::load(from + 4 * in_stride);
    const T x2 = Lanes<T>::load(from + 8 * in_stride), x3 = Lanes<T>::load(from + 12 * in_stride);
    rows[0][j] = x0 + x1 + x2;
    rows[1][j] = x1 - x2 - x3;
  }
  const T added = Lanes<T>::load(bias + at);
#pragma GCC unroll 2
  for (size_t i = 0; i < kTileOut; ++i) {
    const T y[kTileOut] = {rows[i][0] + rows[i][1] + rows[i][2],
                           rows[i][1] - rows[i][2] - rows[i][3]};
#pragma GCC unroll 2
    for (size_t j = 0; j < kTileOut; ++j) {
      const size_t pixel = i * kTileOut + j;
      if (pixels[pixel] == nullptr) continue;
      T x = y[j] + added;
      if (residual != nullptr) x += Lanes<T>::load(residual[pixel] + at);
      Lanes<T>::store(pixels[pixel] + at, clamp(x, min, max));
    }
  }
}

void transform_output(const float* in, size_t in_stride, size_t channels, const float* bias,
                      const float* const* residual, float min, float max, float* const* pixels) {
  size_t at = 0;
  const Vector mins = broadcast(min), maxs = broadcast(max);
  for (; at + kLanes <= channels; at += kLanes) {
    output_lanes<Vector>(in, in_stride, at, bias, residual, mins, maxs, pixels);
  }
  for (; at < channels; ++at) {
    output_lanes<float>(in, in_stride, at, bias, residual, min, max, pixels);
  }
}

// ---- depthwise convolutions

EDGEWISE_INLINE Vector hardswish(Vector x) {
  return x * clamp(x + 3.0f, Vector{}, broadcast(6)) * (1.0f / 6);
}

void hardswish(float* x, size_t count) {
  for (size_t at = 0; at < count; at += kLanes) {
    Lanes<Vector>::store(x + at, hardswish(Lanes<Vector>::load(x + at)));
  }
}

template <size_t kSide>
void depthwise_taps(const DepthwiseRow& row) {
  const Vector min = broadcast(row.min), max = broadcast(row.max);
  const size_t pixel_stride = row.pixel_stride, step = row.step, out_stride = row.out_stride;
  const bool swishes = row.swishes;
  for (size_t at = 0; at < row.columns; at += kLanes) {
    Vector weights[kSide * kSide];
#pragma GCC unroll 25
    for (size_t i = 0; i < kSide * kSide; ++i) {
      weights[i] = Lanes<Vector>::load(row.weights + i * kColumns + at);
    }
    const Vector bias = Lanes<Vector>::load(row.weights + kSide * kSide * kColumns + at);
    const float* from[kSide];
#pragma GCC unroll 5
    for (size_t i = 0; i < kSide; ++i) from[i] = row.rows[i] + at;
    float* out = row.out + at;
    for (size_t x = row.count; x > 0; --x) {
      Vector sum = bias;
#pragma GCC unroll 5
      for (size_t i = 0; i < kSide; ++i) {
#pragma GCC unroll 5
        for (size_t j = 0; j < kSide; ++j) {
          sum += Lanes<Vector>::load(from[i] + j * pixel_stride) * weights[i * kSide + j];
        }
        from[i] += step;
      }
      sum = clamp(sum, min, max);
      Lanes<Vector>::store(out, swishes ? hardswish(sum) : sum);
      out += out_stride;
    }
  }
}

void depthwise(const DepthwiseRow& row) {
  row.side == 3 ? depthwise_taps<3>(row) : depthwise_taps<5>(row);
}

// ---- attention

// e^x for x <= 0, within 2 units in the last place; below -87 it is zero. NaN stays NaN.
EDGEWISE_INLINE Vector exponential(Vector x) {
  constexpr float kLog2 = 1.44269504f;
  constexpr float kHigh = 0.693359375f;  // ln 2 = kHigh + kLow
  constexpr float kLow = -2.12194440e-4f;
  constexpr float kShift = 12582912.0f;  // 1.5 * 2^23: rounds to an integer
  const Vector shifted = x * kLog2 + kShift;
  const Vector whole = shifted - kShift;
  const Vector r = (x - whole * kHigh) - whole * kLow;  // |r| <= ln 2 / 2
  // Taylor's polynomial; its seventh term is below 2^-27.
  Vector y = r * (1.0f / 5040) + 1.0f / 720;
  y = y * r + 1.0f / 120;
  y = y * r + 1.0f / 24;
  y = y * r + 1.0f / 6;
  y = y * r + 0.5f;
  y = y * r + 1.0f;
  y = y * r + 1.0f;
  const IntVector power = (reinterpret_cast<IntVector>(shifted) - 0x4B400000 + 127)
                          << 23;  // 2^whole
  const Vector result = y * reinterpret_cast<Vector>(power);
  return x < -87.0f ? Vector{} : result;
}

EDGEWISE_INLINE float largest(const float* x, size_t count) {
  float result = x[0];
  size_t at = 0;
  if (count >= kLanes) {
    Vector most = Lanes<Vector>::load(x);
    for (at = kLanes; at + kLanes <= count; at += kLanes) {
      const Vector next = Lanes<Vector>::load(x + at);
      most = most > next ? most : next;
    }
    for (size_t i = 0; i < kLanes; ++i) result = most[i] > result ? most[i] : result;
  }
  for (; at < count; ++at) result = x[at] > result ? x[at] : result;
  return result;
}

void exponentials(float* x, size_t stride, size_t rows, size_t columns, float scale, float* sums) {
  for (size_t i = 0; i < rows; ++i, x += stride) {
    const float most = largest(x, columns);
    Vector sum{};
    size_t at = 0;
    for (; at + kLanes <= columns; at += kLanes) {
      const Vector y = exponential((Lanes<Vector>::load(x + at) - most) * scale);
      Lanes<Vector>::store(x + at, y);
      sum += y;
    }
    float total = 0;
    if (at < columns) {
      Vector last{};
      for (size_t k = at; k < columns; ++k) last[k - at] = (x[k] - most) * scale;
      last = exponential(last);
      for (size_t k = at; k < columns; ++k) total += x[k] = last[k - at];
    }
    for (size_t k = 0; k < kLanes; ++k) total += sum[k];
    sums[i] = total;
  }
}

void transpose(const float* from, size_t from_stride, size_t rows, size_t columns, float* to,
               size_t to_stride) {
  constexpr size_t kBlock = 16;
  for (size_t j = 0; j < rows; j += kBlock) {
    const size_t end = j + kBlock < rows ? j + kBlock : rows;
    for (size_t i = 0; i < columns; ++i) {
      float* out = to + i * to_stride;
      for (size_t k = j; k < end; ++k) out[k] = from[k * from_stride + i];
    }
  }
}

}  // namespace

extern const FloatKernels EDGEWISE_KERNELS;
const FloatKernels EDGEWISE_KERNELS = {
    EDGEWISE_KERNELS_NAME, kRows,     kColumns,  kLanes,       multiply, transform_input,
    transform_output,      depthwise, hardswish, exponentials, transpose};

}  // namespace edgewise::xnnpack
