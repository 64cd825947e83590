// Included into XNNPACK's operator-run.c when edgewise builds it.
//
// XNNPACK walks a matrix product row block by row block and streams all weights through the
// cache for each. Where the weights are larger than the cache, that is one pass over them for
// every few rows. Here the walk goes the other way round: a block of weights that fits the
// cache is kept until all rows have used it. Of a single row, weights larger than any cache are
// read by a kernel that goes past the caches: see xnnpack_streaming_kernel.h.
#pragma once

#if XNN_ARCH_X86_64 && XNN_ENABLE_AVX512VNNI
#include "xnnpack/gemm.h"
DECLARE_QD8_F32_QB4W_GEMM_MINMAX_UKERNEL_FUNCTION(edgewise_streaming_qd8_f32_qb4w_gemm)
#define EDGEWISE_CACHED_KERNEL xnn_qd8_f32_qb4w_gemm_minmax_ukernel_1x16c8__avx512vnni_prfm
#define EDGEWISE_STREAMING_KERNEL edgewise_streaming_qd8_f32_qb4w_gemm
#endif
// Whether the weights of what runs are larger than the caches, see weight_stream.h.
extern int edgewise_streams_weights(void) __attribute__((weak));

#ifndef EDGEWISE_WEIGHTS_BLOCK
#define EDGEWISE_WEIGHTS_BLOCK (256 * 1024)
#endif

struct edgewise_transposed {
  pthreadpool_task_2d_tile_2d_t task;
  void* context;
};

static void edgewise_run_transposed(struct edgewise_transposed* walk, size_t column, size_t row,
                                    size_t columns, size_t rows) {
  walk->task(walk->context, row, column, rows, columns);
}

// Whether it ran the product, with a kernel for weights that are not cached.
static bool edgewise_stream_product(pthreadpool_t threadpool, pthreadpool_task_2d_tile_2d_t task,
                                    void* context, size_t columns, size_t column_tile,
                                    uint32_t flags) {
#ifdef EDGEWISE_STREAMING_KERNEL
  if (task != (pthreadpool_task_2d_tile_2d_t)xnn_compute_dqgemm || !&edgewise_streams_weights ||
      !edgewise_streams_weights()) {
    return false;
  }
  struct gemm_context product = *(const struct gemm_context*)context;
  xnn_dqgemm_ukernel_fn* kernel = &product.dq_ukernel.function[XNN_UARCH_DEFAULT];
  if (*kernel != (xnn_dqgemm_ukernel_fn)EDGEWISE_CACHED_KERNEL) return false;
  *kernel = (xnn_dqgemm_ukernel_fn)EDGEWISE_STREAMING_KERNEL;
  pthreadpool_parallelize_2d_tile_2d(threadpool, task, &product, 1, columns, 1, column_tile, flags);
  return true;
#else
  return false;
#endif
}

static void edgewise_parallelize_2d_tile_2d(pthreadpool_t threadpool,
                                            pthreadpool_task_2d_tile_2d_t task, void* context,
                                            size_t rows, size_t columns, size_t row_tile,
                                            size_t column_tile, uint32_t flags) {
  if (rows == 1 &&
      edgewise_stream_product(threadpool, task, context, columns, column_tile, flags)) {
    return;
  }
  size_t stride = 0;  // bytes of weights for one column
  size_t step = 1;    // columns that a microkernel computes at once
  if (task == (pthreadpool_task_2d_tile_2d_t)xnn_compute_gemm ||
      task == (pthreadpool_task_2d_tile_2d_t)xnn_compute_dqgemm) {
    const struct gemm_context* product = (const struct gemm_context*)context;
    stride = product->w_stride;
    step = product->cn_stride >> product->log2_csize;
  } else if (task == (pthreadpool_task_2d_tile_2d_t)xnn_compute_igemm ||
             task == (pthreadpool_task_2d_tile_2d_t)xnn_compute_dqigemm) {
    const struct igemm_context* product = (const struct igemm_context*)context;
    stride = product->w_stride;
    step = product->cn_stride >> product->log2_csize;
  }
  if (step == 0 || rows <= row_tile || stride * columns <= EDGEWISE_WEIGHTS_BLOCK) {
    pthreadpool_parallelize_2d_tile_2d(threadpool, task, context, rows, columns, row_tile,
                                       column_tile, flags);
    return;
  }
  size_t block = EDGEWISE_WEIGHTS_BLOCK / stride / step * step;
  if (block == 0) block = step;
  struct edgewise_transposed walk = {task, context};
  pthreadpool_parallelize_2d_tile_2d(threadpool,
                                     (pthreadpool_task_2d_tile_2d_t)edgewise_run_transposed, &walk,
                                     columns, rows, block, row_tile, flags);
}
