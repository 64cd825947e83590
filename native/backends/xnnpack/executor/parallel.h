// Loops over a program's threads.
#pragma once

#include <algorithm>
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

inline constexpr size_t kCacheLine = 64;

// The number of threads; 1 without a pool.
inline size_t threads_of(pthreadpool_t pool) { return pthreadpool_get_threads_count(pool); }

inline size_t divide_up(size_t a, size_t b) { return (a + b - 1) / b; }
inline size_t round_up(size_t count, size_t step) { return divide_up(count, step) * step; }

// The start of part `index` of `total` things, in `parts` parts of sizes that differ by one at
// most.
inline size_t part_start(size_t total, size_t parts, size_t index) { return total * index / parts; }

// Parts of each of `items` that threads share: one if they share items evenly, else some, `most` at
// most, so that a thread which is late does little harm.
inline size_t parts_of_items(size_t items, size_t threads, size_t most) {
  return items % threads == 0 ? 1 : std::min(most, divide_up(4 * threads, items));
}

// body(panel, row) for each panel of a GEMM's weights and each row of an image's results. Row by
// row while all panels stay in a core's cache; else some rows for each panel, which stays there.
template <typename Body>
void parallel_for_panels(pthreadpool_t pool, size_t panels, size_t rows, bool is_cached,
                         Body body) {
  const size_t threads = threads_of(pool);
  const bool is_by_row = is_cached && rows >= threads;
  const size_t chunks = is_by_row ? rows : std::min(rows, divide_up(8 * threads, panels));
  const size_t together = is_by_row ? panels : 1;
  parallel_for(pool, panels / together * chunks, [&](size_t item, size_t) {
    const size_t chunk = item % chunks, first = item / chunks;
    const size_t end = part_start(rows, chunks, chunk + 1);
    for (size_t row = part_start(rows, chunks, chunk); row < end; ++row) {
      for (size_t panel = first; panel < first + together; ++panel) body(panel, row);
    }
  });
}

}  // namespace edgewise::xnnpack
