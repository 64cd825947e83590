// Sums and extremes of arrays. They are taken in lanes side by side, which the compiler turns
// into vector instructions, and which also rounds less than one long chain of additions.
#pragma once

#include "target.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {

// Shorter arrays are taken element by element: lanes would cost more than they save.
inline constexpr int64_t kFewElements = 16;

// Calls `step(lane, x[i])` for all elements and returns the lanes, joined by `join`.
template <typename Lane, typename C, typename Step, typename Join>
Lane in_lanes(const C* x, int64_t n, Lane start, Step step, Join join) {
  if (n < kFewElements) {
    for (int64_t i = 0; i < n; ++i) start = step(start, x[i]);
    return start;
  }
  constexpr int64_t kLanes = 32;
  Lane lanes[kLanes];
  for (Lane& lane : lanes) lane = start;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) lanes[j] = step(lanes[j], x[i + j]);
  }
  for (; i < n; ++i) lanes[i % kLanes] = step(lanes[i % kLanes], x[i]);
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t j = 0; j < width; ++j) lanes[j] = join(lanes[j], lanes[j + width]);
  }
  return lanes[0];
}

// The sum of an array in its own type, in several registers; integers wrap.
template <typename C>
C plain_sum(const C* x, int64_t n) {
  using Number = typename std::conditional_t<std::is_integral_v<C>, std::make_unsigned<C>,
                                             std::type_identity<C>>::type;
  if (n < kFewElements) {
    Number sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += static_cast<Number>(x[i]);
    return static_cast<C>(sum);
  }
  typedef Number Vector [[gnu::vector_size(32)]];
  constexpr int64_t kLanes = sizeof(Vector) / sizeof(C), kVectors = 4;
  Vector sums[kVectors] = {};
  int64_t i = 0;
  for (; i + kVectors * kLanes <= n; i += kVectors * kLanes) {
    for (int64_t v = 0; v < kVectors; ++v) {
      Vector part;
      std::memcpy(&part, x + i + v * kLanes, sizeof(part));
      sums[v] += part;
    }
  }
  const Vector all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  Number lanes[kLanes];
  std::memcpy(lanes, &all, sizeof(all));
  for (; i < n; ++i) lanes[i % kLanes] += static_cast<Number>(x[i]);
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  }
  return static_cast<C>(lanes[0]);
}

// In double; a sum of float is taken in float over stretches short enough to round little.
template <typename C>
double sum_of(const C* x, int64_t n) {
  constexpr int64_t kStretch = 512;  // 16 additions to a lane
  double total = 0;
  for (int64_t i = 0; i < n; i += kStretch) {
    total += static_cast<double>(plain_sum(x + i, std::min(kStretch, n - i)));
  }
  return total;
}

// The sum of squared differences from `mean`, in double.
template <typename C>
double squared_deviations(const C* x, int64_t n, double mean) {
  return in_lanes<double>(
      x, n, 0.0,
      [mean](double sum, C value) {
        const double delta = static_cast<double>(value) - mean;
        return sum + delta * delta;
      },
      [](double a, double b) { return a + b; });
}

// The largest or smallest of at least one element; NaN if there is one.
template <bool kLargest, typename C>
C extreme_of(const C* x, int64_t n) {
  const auto better = [](C a, C b) { return (kLargest ? b > a : b < a) || b != b ? b : a; };
  const auto keep = [](C a, C b) { return a != a || (kLargest ? a > b : a < b) ? a : b; };
  // NaN replaces what is in a lane, and stays there since no comparison with it holds.
  return in_lanes<C>(x, n, x[0], better, keep);
}

}  // namespace HWY_NAMESPACE
}  // namespace edgewise
