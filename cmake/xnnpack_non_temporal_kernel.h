// Included at the end of a kernel's source when edgewise builds XNNPACK: compiles it once more, for
// weights that no cache holds.
//
// GEMV, a matrix product of one row, reads each weight once. Those of a language model come from memory for every
// token, and push out of the caches what could stay there. This kernel prefetches them (non-temporal), past the
// caches, and from far enough ahead that looking up the address of a page is over by then: 4 KiB,
// where XNNPACK's is 896 bytes ahead.
#ifndef EDGEWISE_NON_TEMPORAL_KERNEL_H
#define EDGEWISE_NON_TEMPORAL_KERNEL_H

#define xnn_prefetch_to_l1(address) _mm_prefetch((const char*)(address) + 3200, _MM_HINT_NTA)
#define xnn_qd8_f32_qb4w_gemm_minmax_ukernel_1x16c8__avx512vnni_prfm \
  edgewise_non_temporal_qd8_f32_qb4w_gemm
DECLARE_QD8_F32_QB4W_GEMM_MINMAX_UKERNEL_FUNCTION(edgewise_non_temporal_qd8_f32_qb4w_gemm)
#include "qd8-f32-qb4w-gemm/gen/qd8-f32-qb4w-gemm-1x16c8-minmax-avx512vnni-prfm.c"

#endif
