#include "gemm.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

#if EDGEWISE_HAS_AVX2
constexpr size_t kVectorBytes = 32;
#else
constexpr size_t kVectorBytes = 16;
#endif
#if defined(__aarch64__)
constexpr int64_t kRegisters = 32;
#else
constexpr int64_t kRegisters = 16;
#endif

// Integers wrap, so that they are unsigned here.
template <typename C>
using Number = std::conditional_t<std::is_same_v<C, int32_t>, uint32_t,
                                  std::conditional_t<std::is_integral_v<C>, uint64_t, C>>;

template <typename C, size_t kBytes = kVectorBytes, int64_t kOfCpu = kRegisters>
struct Tile {
  typedef Number<C> Vector [[gnu::vector_size(kBytes), gnu::may_alias]];
  static constexpr int64_t kLanes = kBytes / sizeof(C);
  static constexpr int64_t kVectors = kGemmColumns / kLanes;  // of a row of the result
  // Sums stay in registers, and leave some for the factors.
  static constexpr int64_t kRows = std::max<int64_t>(1, kOfCpu * 3 / 4 / kVectors);
};

template <typename C, int64_t kRows, typename T = Tile<C>>
[[gnu::always_inline]] inline void multiply(const C* a, int64_t k, const Panel<C>& panel,
                                            const C* shifts, const Rows<C>& result) {
  using Vector = typename T::Vector;
  constexpr int64_t kVectors = T::kVectors;
  Vector sums[kRows][kVectors] = {};
  if (shifts) {
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t v = 0; v < kVectors; ++v) sums[r][v] += static_cast<Number<C>>(shifts[r]);
    }
  }
  const C* row = panel.data;
  for (int64_t i = 0; i < k; ++i, row += panel.stride) {
    Vector columns[kVectors];
    for (int64_t v = 0; v < kVectors; ++v)
      std::memcpy(&columns[v], row + v * T::kLanes, sizeof(Vector));
    for (int64_t r = 0; r < kRows; ++r) {
      const auto factor = static_cast<Number<C>>(a[r * k + i]);
      for (int64_t v = 0; v < kVectors; ++v) sums[r][v] += factor * columns[v];
    }
  }
  for (int64_t r = 0; r < kRows; ++r) {
    C* to = result.data + r * result.stride;
    for (int64_t v = 0; v < kVectors; ++v)
      std::memcpy(to + v * T::kLanes, &sums[r][v], sizeof(Vector));
  }
}

#if EDGEWISE_HAS_AVX2
// The same in registers of 64 bytes, of which CPUs with AVX-512 have 32.
template <typename C>
using WideTile = Tile<C, 64, sizeof(C) == 4 ? 16 : 32>;  // 12 rows

template <typename C>
[[EDGEWISE_WIDE]] int64_t multiply_wide(const C* a, int64_t m, int64_t k, const Panel<C>& panel,
                                        const C* shifts, const Rows<C>& result) {
  constexpr int64_t kRows = WideTile<C>::kRows;
  int64_t row = 0;
  for (; row + kRows <= m; row += kRows) {
    multiply<C, kRows, WideTile<C>>(a + row * k, k, panel, shifts ? shifts + row : shifts,
                                    result.from(row));
  }
  for (; row + 4 <= m; row += 4) {
    multiply<C, 4, WideTile<C>>(a + row * k, k, panel, shifts ? shifts + row : shifts,
                                result.from(row));
  }
  return row;
}
#endif

// The last rows, of which there are fewer than a tile's.
template <typename C, int64_t kRows = Tile<C>::kRows - 1>
void multiply_last(const C* a, int64_t rows, int64_t k, const Panel<C>& panel, const C* shifts,
                   const Rows<C>& result) {
  if constexpr (kRows > 0) {
    if (rows == kRows) return multiply<C, kRows>(a, k, panel, shifts, result);
    multiply_last<C, kRows - 1>(a, rows, k, panel, shifts, result);
  }
}

}  // namespace

template <typename C>
void gemm_rows(const C* a, int64_t m, int64_t k, const Panel<C>& panel, const C* shifts,
               const Rows<C>& result) {
  constexpr int64_t kRows = Tile<C>::kRows;
  int64_t row = 0;
#if EDGEWISE_HAS_AVX2
  if (has_wide()) row = multiply_wide(a, m, k, panel, shifts, result);
#endif
  for (; row + kRows <= m; row += kRows) {
    multiply<C, kRows>(a + row * k, k, panel, shifts ? shifts + row : shifts, result.from(row));
  }
  multiply_last<C>(a + row * k, m - row, k, panel, shifts ? shifts + row : shifts,
                   result.from(row));
}

template <typename C>
C dot(const C* a, const C* b, int64_t count) {
  constexpr int64_t kLanes = 32;  // side by side, in several registers
  Number<C> lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) {
      lanes[j] += static_cast<Number<C>>(a[i + j]) * static_cast<Number<C>>(b[i + j]);
    }
  }
  for (; i < count; ++i) lanes[0] += static_cast<Number<C>>(a[i]) * static_cast<Number<C>>(b[i]);
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  }
  return static_cast<C>(lanes[0]);
}

// The sums of the lanes of four vectors.
template <typename Vector>
[[gnu::always_inline]] inline void sum_lanes(const Vector (&v)[kDots], auto* results) {
  constexpr int kLanes = sizeof(Vector) / sizeof(v[0][0]);
  if constexpr (kLanes == 2) {
    for (int64_t r = 0; r < kDots; ++r) results[r] = v[r][0] + v[r][1];
  } else if constexpr (kLanes == 4) {
    const Vector x = __builtin_shufflevector(v[0], v[1], 0, 4, 1, 5) +
                     __builtin_shufflevector(v[0], v[1], 2, 6, 3, 7);
    const Vector y = __builtin_shufflevector(v[2], v[3], 0, 4, 1, 5) +
                     __builtin_shufflevector(v[2], v[3], 2, 6, 3, 7);
    const Vector sums =
        __builtin_shufflevector(x, y, 0, 1, 4, 5) + __builtin_shufflevector(x, y, 2, 3, 6, 7);
    for (int64_t r = 0; r < kDots; ++r) results[r] = sums[r];
  } else {
    static_assert(kLanes == 8);
    const Vector x = __builtin_shufflevector(v[0], v[1], 0, 8, 1, 9, 4, 12, 5, 13) +
                     __builtin_shufflevector(v[0], v[1], 2, 10, 3, 11, 6, 14, 7, 15);
    const Vector y = __builtin_shufflevector(v[2], v[3], 0, 8, 1, 9, 4, 12, 5, 13) +
                     __builtin_shufflevector(v[2], v[3], 2, 10, 3, 11, 6, 14, 7, 15);
    const Vector halves = __builtin_shufflevector(x, y, 0, 1, 8, 9, 4, 5, 12, 13) +
                          __builtin_shufflevector(x, y, 2, 3, 10, 11, 6, 7, 14, 15);
    for (int64_t r = 0; r < kDots; ++r) results[r] = halves[r] + halves[r + kDots];
  }
}

template <typename C>
void dots(const C* a, const C* b, int64_t stride, int64_t count, C* results) {
  using Vector = typename Tile<C>::Vector;
  constexpr int64_t kLanes = Tile<C>::kLanes, kVectors = 2;
  Vector sums[kDots][kVectors] = {};
  int64_t i = 0;
  for (; i + kVectors * kLanes <= count; i += kVectors * kLanes) {
    for (int64_t v = 0; v < kVectors; ++v) {
      Vector left, right;
      std::memcpy(&left, a + i + v * kLanes, sizeof(left));
      for (int64_t r = 0; r < kDots; ++r) {
        std::memcpy(&right, b + r * stride + i + v * kLanes, sizeof(right));
        sums[r][v] += left * right;
      }
    }
  }
  const Vector both[kDots] = {sums[0][0] + sums[0][1], sums[1][0] + sums[1][1],
                              sums[2][0] + sums[2][1], sums[3][0] + sums[3][1]};
  Number<C> totals[kDots];
  sum_lanes(both, totals);
  for (; i < count; ++i) {
    for (int64_t r = 0; r < kDots; ++r) {
      totals[r] += static_cast<Number<C>>(a[i]) * static_cast<Number<C>>(b[r * stride + i]);
    }
  }
  for (int64_t r = 0; r < kDots; ++r) results[r] = static_cast<C>(totals[r]);
}

template void dots(const float*, const float*, int64_t, int64_t, float*);
template void dots(const double*, const double*, int64_t, int64_t, double*);
template void dots(const int64_t*, const int64_t*, int64_t, int64_t, int64_t*);
template void dots(const int32_t*, const int32_t*, int64_t, int64_t, int32_t*);
template void gemm_rows(const float*, int64_t, int64_t, const Panel<float>&, const float*,
                        const Rows<float>&);
template void gemm_rows(const double*, int64_t, int64_t, const Panel<double>&, const double*,
                        const Rows<double>&);
template void gemm_rows(const int64_t*, int64_t, int64_t, const Panel<int64_t>&, const int64_t*,
                        const Rows<int64_t>&);
template void gemm_rows(const int32_t*, int64_t, int64_t, const Panel<int32_t>&, const int32_t*,
                        const Rows<int32_t>&);
template float dot(const float*, const float*, int64_t);
template double dot(const double*, const double*, int64_t);
template int64_t dot(const int64_t*, const int64_t*, int64_t);
template int32_t dot(const int32_t*, const int32_t*, int64_t);

}  // namespace HWY_NAMESPACE
}  // namespace edgewise
