// Matrix product on plain arrays, for kernels that XNNPACK does not take.
#pragma once

#include "view.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {

inline constexpr int64_t kGemmColumns = 16;

// kGemmColumns columns of B, and of the product: rows that are `stride` elements apart.
template <typename C>
struct Panel {
  const C* data;
  int64_t stride = kGemmColumns;
};
template <typename C>
struct Rows {
  C* data;
  int64_t stride = kGemmColumns;

  Rows from(int64_t row) const { return {data + row * stride, stride}; }
};

// Multiplies A [m, k], row-major, with the columns of a panel [k, kGemmColumns]. Each row of the
// result has its own of `shifts` added; null: none.
template <typename C>
void gemm_rows(const C* a, int64_t m, int64_t k, const Panel<C>& panel, const C* shifts,
               const Rows<C>& result);

// The sum of products of two arrays.
template <typename C>
C dot(const C* a, const C* b, int64_t count);

// Those of `a` with kDots arrays, `stride` elements apart.
inline constexpr int64_t kDots = 4;
template <typename C>
void dots(const C* a, const C* b, int64_t stride, int64_t count, C* results);

// `pack(first, count, panel)` writes `count` columns of B from `first` on to panel[k][column]
// and zeros to the rest; `write(row, first, count, products)` takes what comes out.
template <typename C, typename Pack, typename Write>
Status gemm(int64_t m, int64_t n, int64_t k, const C* a, Pack&& pack, Write&& write) {
  constexpr int64_t kRows = 48;
  Scratch<C> panel;
  EDGEWISE_RETURN_IF_ERROR(panel.reserve(std::max<int64_t>(k, 1) * kGemmColumns));
  alignas(64) C result[kRows * kGemmColumns];
  for (int64_t first = 0; first < n; first += kGemmColumns) {
    const int64_t count = std::min(kGemmColumns, n - first);
    pack(first, count, panel.data());
    for (int64_t row = 0; row < m; row += kRows) {
      const int64_t rows = std::min(kRows, m - row);
      gemm_rows<C>(a + row * k, rows, k, {panel.data()}, nullptr, {result});
      for (int64_t r = 0; r < rows; ++r) write(row + r, first, count, result + r * kGemmColumns);
    }
  }
  return {};
}

extern template void dots(const float*, const float*, int64_t, int64_t, float*);
extern template void dots(const double*, const double*, int64_t, int64_t, double*);
extern template void dots(const int64_t*, const int64_t*, int64_t, int64_t, int64_t*);
extern template void dots(const int32_t*, const int32_t*, int64_t, int64_t, int32_t*);
extern template void gemm_rows(const float*, int64_t, int64_t, const Panel<float>&, const float*,
                               const Rows<float>&);
extern template void gemm_rows(const double*, int64_t, int64_t, const Panel<double>&, const double*,
                               const Rows<double>&);
extern template void gemm_rows(const int64_t*, int64_t, int64_t, const Panel<int64_t>&,
                               const int64_t*, const Rows<int64_t>&);
extern template void gemm_rows(const int32_t*, int64_t, int64_t, const Panel<int32_t>&,
                               const int32_t*, const Rows<int32_t>&);
extern template float dot(const float*, const float*, int64_t);
extern template double dot(const double*, const double*, int64_t);
extern template int64_t dot(const int64_t*, const int64_t*, int64_t);
extern template int32_t dot(const int32_t*, const int32_t*, int64_t);

}  // namespace HWY_NAMESPACE
}  // namespace edgewise
