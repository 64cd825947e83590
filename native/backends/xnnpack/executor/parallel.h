// Loops over a program's threads.
#pragma once

#include <cstddef>

#include "pthreadpool.h"

namespace edgewise::xnnpack {

// body(item, thread) for each item below `count`; thread is below threads_of(pool).
template <typename Body>
void parallel_for(pthreadpool_t pool, size_t count, Body body) {
  pthreadpool_parallelize_1d_with_thread(
      pool,
      [](void* context, size_t thread, size_t item) {
        (*static_cast<Body*>(context))(item, thread);
      },
      &body, count, PTHREADPOOL_FLAG_DISABLE_DENORMALS);
}

// The number of threads; 1 without a pool.
inline size_t threads_of(pthreadpool_t pool) { return pthreadpool_get_threads_count(pool); }

inline size_t divide_up(size_t a, size_t b) { return (a + b - 1) / b; }

// The start of part `index` of `total` things, in `parts` parts of sizes that differ by one at
// most.
inline size_t part_start(size_t total, size_t parts, size_t index) { return total * index / parts; }

}  // namespace edgewise::xnnpack
