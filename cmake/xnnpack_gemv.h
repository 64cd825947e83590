// Included into XNNPACK's operator-run.c when edgewise builds it.
//
// GEMV, a matrix gemv of one row, is over in microseconds, which threads mostly spend waiting for
// memory: what lies around it counts. XNNPACK's loops for one row can be recorded: GEMVs are then
// kept, run as one loop when told to, and replayed without XNNPACK; see
// native/backends/xnnpack/gemv.h.
#pragma once

// A GEMV, with the kernel to run it.
struct edgewise_gemv {
  struct gemm_context context;
  pthreadpool_task_2d_tile_2d_t task;
  size_t columns, column_tile;
  size_t end;  // of its tiles, where several are run as one loop
  uint32_t flags;
};

// What prepares a row, and GEMVs of it.
#define EDGEWISE_MOST_PREPARATIONS 4
#define EDGEWISE_MOST_GEMV 4

struct edgewise_preparation {
  pthreadpool_task_1d_t task;
  void* context;
  uint32_t flags;
};

struct edgewise_gemv_recording {
  bool is_whole;  // nothing else was run
  size_t preparations;
  struct edgewise_preparation preparation[EDGEWISE_MOST_PREPARATIONS];
  size_t count;
  struct edgewise_gemv gemvs[EDGEWISE_MOST_GEMV];
};

// Where this thread's GEMVs are kept instead of being run.
static _Thread_local struct edgewise_gemv_recording* edgewise_recorded = NULL;

size_t edgewise_gemv_recording_size(void) { return sizeof(struct edgewise_gemv_recording); }

void edgewise_record_gemv(struct edgewise_gemv_recording* gemvs) {
  edgewise_recorded = gemvs;
  if (gemvs == NULL) return;
  gemvs->is_whole = true;
  gemvs->preparations = gemvs->count = 0;
}

static void edgewise_run_gemv_tile(struct edgewise_gemv* gemv, size_t row, size_t tile,
                                  size_t rows, size_t tiles) {
  size_t first = 0;
  for (; tile >= gemv->end; ++gemv) first = gemv->end;
  const size_t column = (tile - first) * gemv->column_tile;
  const size_t columns = gemv->columns - column;
  gemv->task(&gemv->context, 0, column, 1,
                columns < gemv->column_tile ? columns : gemv->column_tile);
}

static void edgewise_run_gemv(struct edgewise_gemv* gemvs, size_t count,
                                  pthreadpool_t threadpool) {
  size_t tiles = 0;
  for (size_t i = 0; i < count; ++i) {
    const size_t tile = gemvs[i].column_tile;
    gemvs[i].end = tiles += (gemvs[i].columns + tile - 1) / tile;
  }
  pthreadpool_parallelize_2d_tile_2d(threadpool,
                                     (pthreadpool_task_2d_tile_2d_t)edgewise_run_gemv_tile, gemvs,
                                     1, tiles, 1, 1, gemvs->flags);
}

void edgewise_run_recorded_gemv(struct edgewise_gemv_recording* recorded,
                                    pthreadpool_t threadpool) {
  if (recorded->count == 0) return;
  edgewise_run_gemv(recorded->gemvs, recorded->count, threadpool);
}

// All of it, as XNNPACK did when it was recorded; if not, nothing was run.
bool edgewise_replay_gemv(struct edgewise_gemv_recording* recorded, pthreadpool_t threadpool) {
  if (!recorded->is_whole || recorded->count == 0) return false;
  for (size_t i = 0; i < recorded->preparations; ++i) {
    const struct edgewise_preparation* next = &recorded->preparation[i];
    pthreadpool_parallelize_1d(NULL, next->task, next->context, 1, next->flags);
  }
  edgewise_run_recorded_gemv(recorded, threadpool);
  return true;
}

static void edgewise_note_other_loop(void) {
  if (edgewise_recorded != NULL) edgewise_recorded->is_whole = false;
}

// Of an operator that is about to run: loops of these two types come by below.
static void edgewise_note_operator(const struct xnn_operator* op) {
  for (size_t i = 0; i < XNN_MAX_COMPUTE_INVOCATIONS; ++i) {
    const enum xnn_parallelization_type type = op->compute[i].type;
    if (type != xnn_parallelization_type_invalid && type != xnn_parallelization_type_1d &&
        type != xnn_parallelization_type_2d_tile_2d) {
      edgewise_note_other_loop();
    }
  }
}

static void edgewise_parallelize_1d(pthreadpool_t threadpool, pthreadpool_task_1d_t task,
                                    void* context, size_t range, uint32_t flags) {
  struct edgewise_gemv_recording* recorded = edgewise_recorded;
  if (recorded != NULL && range == 1 && recorded->count == 0 &&
      recorded->preparations < EDGEWISE_MOST_PREPARATIONS) {
    struct edgewise_preparation* next = &recorded->preparation[recorded->preparations++];
    *next = (struct edgewise_preparation){task, context, flags};
  } else {
    edgewise_note_other_loop();
  }
  pthreadpool_parallelize_1d(threadpool, task, context, range, flags);
}

// Whether it is a GEMV, and ran or will.
static bool edgewise_take_gemv(pthreadpool_t threadpool, pthreadpool_task_2d_tile_2d_t task,
                              void* context, size_t columns, size_t column_tile, uint32_t flags) {
  if (task != (pthreadpool_task_2d_tile_2d_t)xnn_compute_gemm &&
      task != (pthreadpool_task_2d_tile_2d_t)xnn_compute_dqgemm) {
    return false;
  }
  struct edgewise_gemv_recording* recorded = edgewise_recorded;
  const bool is_kept = recorded != NULL && recorded->count < EDGEWISE_MOST_GEMV;
  if (!is_kept) edgewise_note_other_loop();
  struct edgewise_gemv now;
  struct edgewise_gemv* gemv = is_kept ? &recorded->gemvs[recorded->count++] : &now;
  gemv->context = *(const struct gemm_context*)context;
  gemv->task = task;
  gemv->columns = columns;
  gemv->column_tile = column_tile;
  gemv->flags = flags;
  if (!is_kept) edgewise_run_gemv(gemv, 1, threadpool);
  return true;
}
