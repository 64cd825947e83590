#include "gemm.h"

namespace edgewise {
namespace {

template <typename C, int64_t kRows>
void multiply(const C* a, int64_t k, const C* panel, C* result) {
  C sums[kRows][kGemmColumns] = {};
  for (int64_t i = 0; i < k; ++i) {
    for (int64_t r = 0; r < kRows; ++r) {
      const C factor = a[r * k + i];
      for (int64_t j = 0; j < kGemmColumns; ++j) {
        sums[r][j] = wrap_add(sums[r][j], wrap_mul(factor, panel[i * kGemmColumns + j]));
      }
    }
  }
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t j = 0; j < kGemmColumns; ++j) result[r * kGemmColumns + j] = sums[r][j];
  }
}

}  // namespace

template <typename C>
void gemm_rows(const C* a, int64_t m, int64_t k, const C* panel, C* result) {
  int64_t row = 0;
  for (; row + 4 <= m; row += 4) multiply<C, 4>(a + row * k, k, panel, result + row * kGemmColumns);
  for (; row < m; ++row) multiply<C, 1>(a + row * k, k, panel, result + row * kGemmColumns);
}

template void gemm_rows(const float*, int64_t, int64_t, const float*, float*);
template void gemm_rows(const double*, int64_t, int64_t, const double*, double*);
template void gemm_rows(const int64_t*, int64_t, int64_t, const int64_t*, int64_t*);

}  // namespace edgewise
