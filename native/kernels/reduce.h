// Reductions: which dimensions are reduced, and the walk over results and their elements.
#pragma once

#include "kernel_status.h"
#include "view.h"

namespace edgewise {
inline namespace EDGEWISE_TARGET {

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
// reduced dimensions where these are in memory order, and gives `state.result()`.
//
// If neighbours in memory belong to different results, several results are computed at once.
// A state that has a type Total can do so in vectors: `Total start()`, `add(total, element)`
// and `result_of(total)` are then as a state that takes one element at a time; `pair(a, b)`
// joins two elements beforehand.
template <typename State>
concept Columnwise = requires {
  typename State::Total;
};

inline constexpr int64_t kReductionBlock = 512;

// The elements of `count` neighbouring results, row by row: `take(row, n)` for n <= kRows
// rows of `count` elements, row[k] at rows + k * kReductionBlock.
template <typename C>
class ReductionRows {
 public:
  static constexpr int64_t kRows = 8;

  ReductionRows(const Reduction& plan, const Loop<1>& elements)
      : plan_(plan), elements_(elements) {}

  template <typename Take>
  void run(int64_t base, int64_t count, Take&& take) {
    const C* rows[kRows];
    int64_t held = 0;
    elements_.run([&](const auto& inner, int64_t n, const auto& steps) {
      for (int64_t i = 0; i < n; ++i) {
        const std::byte* source = plan_.input.at(base + inner[0] + i * steps[0]);
        if (plan_.input.type == kTypeOf<C>) {
          rows[held] = reinterpret_cast<const C*>(source);
        } else {
          load<C>(plan_.input.type, source, 1, count, block_[held]);
          rows[held] = block_[held];
        }
        if (++held == kRows) {
          take(rows, held);
          held = 0;
        }
      }
    });
    if (held > 0) take(rows, held);
  }

 private:
  const Reduction& plan_;
  const Loop<1>& elements_;
  alignas(64) C block_[kRows][kReductionBlock];
};

template <typename C, typename State>
void reduce_columns(ReductionRows<C>& source, int64_t base, int64_t count, const State& initial,
                    const View& out, int64_t to, int64_t step) {
  using Total = typename State::Total;
  alignas(64) Total totals[kReductionBlock];
  std::fill_n(totals, count, initial.start());
  source.run(base, count, [&](const C* const* r, int64_t n) {
    if (n == 8) {
      EDGEWISE_INDEPENDENT
      for (int64_t j = 0; j < count; ++j) {
        const auto low = State::pair(State::pair(r[0][j], r[1][j]), State::pair(r[2][j], r[3][j]));
        const auto high = State::pair(State::pair(r[4][j], r[5][j]), State::pair(r[6][j], r[7][j]));
        totals[j] = State::add(totals[j], State::pair(low, high));
      }
      return;
    }
    for (int64_t k = 0; k < n; ++k) {
      for (int64_t j = 0; j < count; ++j) totals[j] = State::add(totals[j], r[k][j]);
    }
  });
  using R = decltype(initial.result_of(Total{}));
  alignas(64) R results[kReductionBlock];
  for (int64_t j = 0; j < count; ++j) results[j] = initial.result_of(totals[j]);
  store<R>(out.type, results, count, out.at(to), step);
}

// States that take blocks are given those of a few results, turned over.
template <typename C, typename State>
void reduce_turned(ReductionRows<C>& source, int64_t base, int64_t count, const State& initial,
                   const View& out, int64_t to, int64_t step) {
  constexpr int64_t kColumns = 16, kHeight = 64;
  C turned[kColumns][kHeight];
  std::optional<State> states[kColumns];
  for (int64_t j = 0; j < count; ++j) states[j] = initial;
  int64_t height = 0;
  const auto flush = [&] {
    for (int64_t j = 0; j < count; ++j) (*states[j])(turned[j], height);
    height = 0;
  };
  source.run(base, count, [&](const C* const* rows, int64_t n) {
    for (int64_t k = 0; k < n; ++k, ++height) {
      for (int64_t j = 0; j < count; ++j) turned[j][height] = rows[k][j];
    }
    if (height + ReductionRows<C>::kRows > kHeight) flush();
  });
  flush();
  for (int64_t j = 0; j < count; ++j) {
    const auto result = states[j]->result();
    store<std::remove_const_t<decltype(result)>>(out.type, &result, 1, out.at(to + j * step), 1);
  }
}

// Reduces with elements as C, storing what the state's result is.
template <typename C, typename State>
void run_reduction(const Reduction& plan, const View& out, const State& initial) {
  const Loop<2> results(plan.kept_sizes, {&plan.out_strides, &plan.kept_strides});
  const Loop<1> elements(plan.reduced_sizes, {&plan.reduced_strides});
  bool together = true;  // elements of one result are neighbours
  elements.run(
      [&](const auto&, int64_t n, const auto& steps) { together = n < 2 || steps[0] == 1; });
  ReductionRows<C> rows(plan, elements);
  alignas(64) C block[kReductionBlock];
  results.run([&](const auto& offsets, int64_t count, const auto& steps) {
    if (!together && steps[1] == 1 && count > 1) {
      constexpr int64_t kWidth = Columnwise<State> ? kReductionBlock : 16;
      for (int64_t r = 0; r < count; r += kWidth) {
        const int64_t width = std::min(kWidth, count - r), to = offsets[0] + r * steps[0];
        if constexpr (Columnwise<State>) {
          reduce_columns(rows, offsets[1] + r, width, initial, out, to, steps[0]);
        } else {
          reduce_turned(rows, offsets[1] + r, width, initial, out, to, steps[0]);
        }
      }
      return;
    }
    for (int64_t r = 0; r < count; ++r) {
      State state = initial;
      const int64_t base = offsets[1] + r * steps[1];
      elements.run([&](const auto& inner, int64_t n, const auto& inner_steps) {
        if (plan.input.type == kTypeOf<C> && inner_steps[0] == 1) {
          state(reinterpret_cast<const C*>(plan.input.at(base + inner[0])), n);
          return;
        }
        for (int64_t start = 0; start < n; start += kReductionBlock) {
          const int64_t part = std::min(kReductionBlock, n - start);
          const std::byte* source = plan.input.at(base + inner[0] + start * inner_steps[0]);
          load<C>(plan.input.type, source, inner_steps[0], part, block);
          state(block, part);
        }
      });
      const auto result = state.result();
      store<std::remove_const_t<decltype(result)>>(out.type, &result, 1,
                                                   out.at(offsets[0] + r * steps[0]), 1);
    }
  });
}

}  // namespace EDGEWISE_TARGET
}  // namespace edgewise
