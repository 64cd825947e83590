// Loops that are over before a second thread could help run on one.
//
// XNNPACK shares every loop of more than one step among the threads of the pool. Handing it over
// and waiting for the last of them costs microseconds; a model that computes one row at a time (a
// language model's next token) has hundreds of loops that take less. So the linker is told
// (CMakeLists.txt) to let XNNPACK's calls of pthreadpool end here, where a loop is timed when it
// first runs, on one thread, and stays there while that is quick. Whoever computes a step of
// these loops, the results are the same.
#include <chrono>
#include <cstdint>

#include "pthreadpool.h"

namespace edgewise::xnnpack {
namespace {

constexpr int64_t kQuickTime = 4000;      // nanoseconds
constexpr uint64_t kMostSteps = 1 << 17;  // more are shared at once
constexpr size_t kSlots = 4096;
constexpr size_t kWays = 8;  // slots in which a loop may be

enum class Kind : uint8_t { kUnknown, kQuick, kSlow };

struct Slot {
  uint64_t key = 0;
  Kind kind = Kind::kUnknown;
};

uint64_t mixed(uint64_t hash, uint64_t value) {
  return (hash ^ value) * 0x9e3779b97f4a7c15u ^ (hash >> 29);
}

// Where a loop is known, or becomes known. With a single slot for each, two of a model's hundred
// loops often had the same one, and were timed on one thread again and again.
Slot& slot_of(uint64_t key) {
  thread_local Slot slots[kSlots];
  Slot* const set = slots + (key >> 55) * kWays;
  for (size_t way = 0; way < kWays; ++way) {
    if (set[way].key == key || set[way].kind == Kind::kUnknown) return set[way];
  }
  return set[key % kWays];
}
static_assert(kSlots / kWays == size_t{1} << (64 - 55));

// `run(pool)` runs the loop. What is known of it is kept by its context and sizes.
template <typename Run, typename... Sizes>
void run_region(pthreadpool_t pool, const void* context, Run&& run, Sizes... sizes) {
  if (pool == nullptr || (uint64_t{1} * ... * sizes) > kMostSteps) return run(pool);
  uint64_t key = mixed(1, reinterpret_cast<uintptr_t>(context));
  ((key = mixed(key, sizes)), ...);
  Slot& slot = slot_of(key);
  if (slot.key == key && slot.kind == Kind::kSlow) return run(pool);
  const auto start = std::chrono::steady_clock::now();
  run(nullptr);
  const std::chrono::nanoseconds time = std::chrono::steady_clock::now() - start;
  slot = {key, time.count() <= kQuickTime ? Kind::kQuick : Kind::kSlow};
}

}  // namespace
}  // namespace edgewise::xnnpack

#define SIZES_1 size_t a
#define SIZES_2 SIZES_1, size_t b
#define SIZES_3 SIZES_2, size_t c
#define SIZES_4 SIZES_3, size_t d
#define SIZES_5 SIZES_4, size_t e
#define NAMES_1 a
#define NAMES_2 NAMES_1, b
#define NAMES_3 NAMES_2, c
#define NAMES_4 NAMES_3, d
#define NAMES_5 NAMES_4, e

// pthreadpool_parallelize_<name>, whose numbers are COUNT sizes and tiles. LOOP names sizes only.
#define WRAP(name, task, count, ...)                                                               \
  extern "C" void __real_pthreadpool_parallelize_##name(pthreadpool_t, task, void*, SIZES_##count, \
                                                        uint32_t);                                 \
  extern "C" void __wrap_pthreadpool_parallelize_##name(                                           \
      pthreadpool_t pool, task function, void* context, SIZES_##count, uint32_t flags) {           \
    edgewise::xnnpack::run_region(                                                                 \
        pool, context,                                                                             \
        [&](pthreadpool_t with) {                                                                  \
          __real_pthreadpool_parallelize_##name(with, function, context, NAMES_##count, flags);    \
        },                                                                                         \
        __VA_ARGS__);                                                                              \
  }

WRAP(1d, pthreadpool_task_1d_t, 1, a)
WRAP(1d_tile_1d, pthreadpool_task_1d_tile_1d_t, 2, a)
WRAP(2d, pthreadpool_task_2d_t, 2, a, b)
WRAP(2d_tile_1d, pthreadpool_task_2d_tile_1d_t, 3, a, b)
WRAP(3d, pthreadpool_task_3d_t, 3, a, b, c)
WRAP(4d, pthreadpool_task_4d_t, 4, a, b, c, d)
WRAP(5d, pthreadpool_task_5d_t, 5, a, b, c, d, e)
