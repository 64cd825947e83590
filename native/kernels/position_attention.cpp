#include "position_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attend.h"
#include "view.h"

namespace edgewise {
namespace {

// Keys, then their values: small enough to find the scores and results in the nearest cache.
constexpr int64_t kBlock = 32;
static_assert(kBlock <= kKeyBlock);
constexpr int64_t kMostTasks = 16;

// Threads share the positions of the cache, not the heads: each then reads one piece of memory from
// end to end, where the rows of one head lie far apart.
class Positions {
 public:
  explicit Positions(const PositionAttention& attention)
      : attention_(attention),
        per_task_(std::max((attention.filled + kMostTasks - 1) / kMostTasks, kBlock)),
        tasks_((attention.filled + per_task_ - 1) / per_task_) {}

  int64_t tasks() const { return tasks_; }

  Status reserve() {
    const int64_t heads = attention_.heads;
    EDGEWISE_RETURN_IF_ERROR(memory_.reserve(heads * attention_.depth + tasks_ * task_floats()));
    for (int64_t i = 0; i < heads * attention_.depth; ++i) {
      memory_[i] = attention_.queries[i] * attention_.scale;
    }
    return {};
  }

  void run_task(int64_t task) const {
    const AttentionState state = state_of(task);
    std::fill_n(state.most, attention_.heads, -std::numeric_limits<float>::infinity());
    std::fill_n(state.total, attention_.heads, 0.0f);
    std::fill_n(state.result, attention_.heads * attention_.depth, 0.0f);
    const HeadsAttention heads{.queries = memory_.data(),
                               .heads = attention_.heads,
                               .shared = attention_.heads / attention_.key_heads,
                               .depth = attention_.depth,
                               .scores = scores_of(task)};
    attention_.cache_type == ScalarType::kHalf ? attend_as<Float16Bits>(heads, task, state)
                                               : attend_as<float>(heads, task, state);
  }

  // What the tasks have, weighted by what each has of the sum of the powers of e.
  void join() const {
    for (int64_t head = 0; head < attention_.heads; ++head) {
      float most = -std::numeric_limits<float>::infinity();
      for (int64_t task = 0; task < tasks_; ++task) {
        most = std::max(most, state_of(task).most[head]);
      }
      float* out = attention_.out + head * attention_.depth;
      std::fill_n(out, attention_.depth, 0.0f);
      float total = 0;
      for (int64_t task = 0; task < tasks_; ++task) {
        const AttentionState state = state_of(task);
        if (state.total[head] == 0) continue;
        const float weight = std::exp(state.most[head] - most);
        total += weight * state.total[head];
        const float* result = state.result + head * attention_.depth;
        for (int64_t d = 0; d < attention_.depth; ++d) out[d] += weight * result[d];
      }
      const float factor = total > 0 ? 1 / total : 0.0f;
      for (int64_t d = 0; d < attention_.depth; ++d) out[d] *= factor;
    }
  }

 private:
  template <typename T>
  void attend_as(const HeadsAttention& heads, int64_t task, const AttentionState& state) const {
    const auto* keys = reinterpret_cast<const T*>(attention_.keys);
    const auto* values = reinterpret_cast<const T*>(attention_.values);
    const int64_t end = std::min((task + 1) * per_task_, attention_.filled);
    const int64_t step = attention_.key_heads * attention_.depth;
    for (int64_t first = task * per_task_; first < end; first += kBlock) {
      attend_heads(heads, keys + first * step, values + first * step,
                   attention_.mask == nullptr ? nullptr : attention_.mask + first,
                   std::min(kBlock, end - first), state);
    }
  }

  // Scores, results, and most and total.
  int64_t task_floats() const {
    return attention_.heads * (kKeyBlock + attention_.depth + 2 + kPadding);
  }
  float* scores_of(int64_t task) const {
    return memory_.data() + attention_.heads * attention_.depth + task * task_floats();
  }
  AttentionState state_of(int64_t task) const {
    float* result = scores_of(task) + attention_.heads * kKeyBlock;
    float* most = result + attention_.heads * attention_.depth;
    return {.most = most, .total = most + attention_.heads, .result = result};
  }

  static constexpr int64_t kPadding = 14;  // two tasks have no line of a cache in common

  const PositionAttention& attention_;
  int64_t per_task_;
  int64_t tasks_;
  Scratch<float> memory_;  // scaled queries, then what each task has
};

}  // namespace

Status attend_position(const PositionAttention& attention, Workers* workers) {
  Positions positions(attention);
  EDGEWISE_RETURN_IF_ERROR(positions.reserve());
  for_each(workers, static_cast<size_t>(positions.tasks()),
           [&](size_t task) { positions.run_task(static_cast<int64_t>(task)); });
  positions.join();
  return {};
}

}  // namespace edgewise
