// Reductions: which dimensions are reduced, and the walk over results and their elements.
#pragma once

#include <vector>

#include "kernel_status.h"
#include "view.h"

namespace edgewise {

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

// Calls `state = initial()`, `state(block, count)` for blocks of elements as C in row-major
// order of the reduced dimensions where these are in memory order, and stores `state.result()`.
template <typename C, typename State>
void run_reduction(const Reduction& plan, const View& out, const State& initial) {
  constexpr int64_t kBlock = 512;
  const Loop<2> results(plan.kept_sizes, {&plan.out_strides, &plan.kept_strides});
  const Loop<1> elements(plan.reduced_sizes, {&plan.reduced_strides});
  alignas(64) C block[kBlock];
  results.run([&](const auto& offsets, int64_t count, const auto& steps) {
    for (int64_t r = 0; r < count; ++r) {
      State state = initial;
      const int64_t base = offsets[1] + r * steps[1];
      elements.run([&](const auto& inner, int64_t n, const auto& inner_steps) {
        for (int64_t start = 0; start < n; start += kBlock) {
          const int64_t part = std::min(kBlock, n - start);
          const std::byte* source = plan.input.at(base + inner[0] + start * inner_steps[0]);
          load<C>(plan.input.type, source, inner_steps[0], part, block);
          state(block, part);
        }
      });
      const C result = state.result();
      store<C>(out.type, &result, 1, out.at(offsets[0] + r * steps[0]), 1);
    }
  });
}

}  // namespace edgewise
