#include "gemm.h"

#include "core/clones.h"

namespace edgewise {
namespace {

template <typename C, int64_t kRows>
[[gnu::always_inline]] inline void multiply(const C* a, int64_t k, const C* panel, C* result) {
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

template <typename C>
[[gnu::always_inline]] inline void multiply_all(const C* a, int64_t m, int64_t k, const C* panel,
                                                C* result) {
  int64_t row = 0;
  for (; row + 4 <= m; row += 4) multiply<C, 4>(a + row * k, k, panel, result + row * kGemmColumns);
  for (; row < m; ++row) multiply<C, 1>(a + row * k, k, panel, result + row * kGemmColumns);
}

EDGEWISE_CLONES void rows_of(const float* a, int64_t m, int64_t k, const float* panel,
                             float* result) {
  multiply_all(a, m, k, panel, result);
}
EDGEWISE_CLONES void rows_of(const double* a, int64_t m, int64_t k, const double* panel,
                             double* result) {
  multiply_all(a, m, k, panel, result);
}
EDGEWISE_CLONES void rows_of(const int64_t* a, int64_t m, int64_t k, const int64_t* panel,
                             int64_t* result) {
  multiply_all(a, m, k, panel, result);
}

}  // namespace

template <typename C>
void gemm_rows(const C* a, int64_t m, int64_t k, const C* panel, C* result) {
  rows_of(a, m, k, panel, result);
}

template void gemm_rows(const float*, int64_t, int64_t, const float*, float*);
template void gemm_rows(const double*, int64_t, int64_t, const double*, double*);
template void gemm_rows(const int64_t*, int64_t, int64_t, const int64_t*, int64_t*);

}  // namespace edgewise
