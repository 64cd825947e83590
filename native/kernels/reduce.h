// Reductions: which dimensions are reduced, and the walk over results and their elements.
#pragma once

#include "kernel_status.h"
#include "view.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {

// The input seen as results (the dimensions that stay) of elements (those reduced).
struct Reduction {
  View input;  // data and type of the input
  Dims kept_sizes, kept_strides;
  Dims out_strides;  // of the dimensions that stay
  Dims reduced_sizes, reduced_strides;

  int64_t reduced_count() const { return reduced_sizes.product(); }
};

// `dims` empty: all. Resizes `out` to the shape that `keepdim` asks for.
Status plan_reduction(const Tensor& self, std::span<const int64_t> dims, bool keepdim, Tensor* out,
                      Reduction& plan);

// A state takes blocks of elements by `state(block, count)`, in row-major order of the
// reduced dimensions where these are in memory order, and gives `state.result()`. It is copied
// as bytes.
//
// If neighbours in memory belong to different results, several results are computed at once.
// A state that has a type Total can do so in vectors: `Total start()`, `add(total, element)`
// and `result_of(total)` are then as a state that takes one element at a time; `pair(a, b)`
// joins two elements beforehand. Others have elements of double.
template <typename State>
concept Columnwise = requires {
  typename State::Total;
};

inline constexpr int64_t kReductionBlock = 512, kReductionRows = 8, kMostStateBytes = 64;

// What of a reduction is compiled for its state: the walk over elements is the same for all.
struct ReductionLoops {
  ScalarType read, result;  // types of elements and results
  size_t state_size;
  void (*row)(void* state, const void* elements, int64_t count);
  void (*row_result)(const void* state, void* result);
  // `count` neighbouring results; null if the state is not columnwise.
  void (*start)(const void* initial, void* totals, int64_t count) = nullptr;
  void (*add)(void* totals, const void* const* rows, int64_t row_count, int64_t count) = nullptr;
  void (*results)(const void* initial, const void* totals, void* results, int64_t count) = nullptr;
};

void run_reduction(const Reduction& plan, const View& out, const ReductionLoops& loops,
                   const void* initial);

template <typename C, typename State>
struct LoopsOf {
  static void row(void* state, const void* elements, int64_t count) {
    (*static_cast<State*>(state))(static_cast<const C*>(elements), count);
  }
  static void row_result(const void* state, void* result) {
    *static_cast<Result*>(result) = static_cast<const State*>(state)->result();
  }
  static void start(const void* initial, void* totals, int64_t count) {
    using Total = typename State::Total;
    std::fill_n(static_cast<Total*>(totals), count, static_cast<const State*>(initial)->start());
  }
  static void add(void* all, const void* const* rows, int64_t row_count, int64_t count) {
    auto* totals = static_cast<typename State::Total*>(all);
    const auto row_at = [rows](int64_t k) { return static_cast<const C*>(rows[k]); };
    if (row_count == kReductionRows) {
      const C *r0 = row_at(0), *r1 = row_at(1), *r2 = row_at(2), *r3 = row_at(3);
      const C *r4 = row_at(4), *r5 = row_at(5), *r6 = row_at(6), *r7 = row_at(7);
      EDGEWISE_INDEPENDENT
      for (int64_t j = 0; j < count; ++j) {
        const auto low = State::pair(State::pair(r0[j], r1[j]), State::pair(r2[j], r3[j]));
        const auto high = State::pair(State::pair(r4[j], r5[j]), State::pair(r6[j], r7[j]));
        totals[j] = State::add(totals[j], State::pair(low, high));
      }
      return;
    }
    for (int64_t k = 0; k < row_count; ++k) {
      const C* row = row_at(k);
      EDGEWISE_INDEPENDENT
      for (int64_t j = 0; j < count; ++j) totals[j] = State::add(totals[j], row[j]);
    }
  }
  static void results(const void* initial, const void* totals, void* results, int64_t count) {
    const auto* from = static_cast<const typename State::Total*>(totals);
    for (int64_t j = 0; j < count; ++j) {
      static_cast<Result*>(results)[j] = static_cast<const State*>(initial)->result_of(from[j]);
    }
  }

  using Result = std::remove_const_t<decltype(std::declval<const State&>().result())>;
};

// Reduces with elements as C, storing what the state's result is.
template <typename C, typename State>
void run_reduction(const Reduction& plan, const View& out, const State& initial) {
  static_assert(std::is_trivially_copyable_v<State> && sizeof(State) <= kMostStateBytes);
  static_assert(Columnwise<State> || std::is_same_v<C, double>);
  using Loops = LoopsOf<C, State>;
  ReductionLoops loops{kTypeOf<C>, kTypeOf<typename Loops::Result>, sizeof(State), Loops::row,
                       Loops::row_result};
  if constexpr (Columnwise<State>) {
    loops.start = Loops::start, loops.add = Loops::add, loops.results = Loops::results;
  }
  run_reduction(plan, out, loops, &initial);
}

}  // namespace HWY_NAMESPACE
}  // namespace edgewise
