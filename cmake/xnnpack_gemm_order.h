// Included into XNNPACK's operator-run.c when edgewise builds it.
//
// XNNPACK walks a matrix product row block by row block and streams all weights through the
// cache for each. Where the weights are larger than the cache, that is one pass over them for
// every few rows. Here the walk goes the other way round: a block of weights that fits the
// cache is kept until all rows have used it.
#pragma once

#include "xnnpack/xnnpack_gemv.h"

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

static void edgewise_parallelize_2d_tile_2d(pthreadpool_t threadpool,
                                            pthreadpool_task_2d_tile_2d_t task, void* context,
                                            size_t rows, size_t columns, size_t row_tile,
                                            size_t column_tile, uint32_t flags) {
  if (rows == 1 && edgewise_take_gemv(threadpool, task, context, columns, column_tile, flags)) {
    return;
  }
  edgewise_note_other_loop();
  size_t stride = 0;  // bytes of weights for one column
  size_t step = 1;    // columns that a microkernel computes at once
  if (task == (pthreadpool_task_2d_tile_2d_t)xnn_compute_gemm ||
      task == (pthreadpool_task_2d_tile_2d_t)xnn_compute_dqgemm) {
    const struct gemm_context* gemm = (const struct gemm_context*)context;
    stride = gemm->w_stride;
    step = gemm->cn_stride >> gemm->log2_csize;
  } else if (task == (pthreadpool_task_2d_tile_2d_t)xnn_compute_igemm ||
             task == (pthreadpool_task_2d_tile_2d_t)xnn_compute_dqigemm) {
    const struct igemm_context* gemm = (const struct igemm_context*)context;
    stride = gemm->w_stride;
    step = gemm->cn_stride >> gemm->log2_csize;
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
