// The rows of views along one dimension, for kernels that need a whole row at a time.
#pragma once

#include "kernel_status.h"
#include "view.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {

// A view without dimensions as one of one element.
inline View with_dims(View view) {
  if (view.sizes.size() == 0) {
    view.sizes.push(1);
    view.strides.push(1);
  }
  return view;
}

// Calls f(firsts) with the first element of each row. The views have the same sizes except
// along `dim`, and are not empty.
template <size_t N, typename F>
void for_rows(const std::array<View, N>& views, size_t dim, F&& f) {
  std::array<Dims, N> strides;
  for (size_t k = 0; k < N; ++k) {
    strides[k] = views[k].strides;
    strides[k].erase(dim);
  }
  Dims sizes = views[0].sizes;
  sizes.erase(dim);
  const auto run = [&](const Loop<N>& loop) {
    loop.run([&](const auto& offsets, int64_t count, const auto& steps) {
      for (int64_t r = 0; r < count; ++r) {
        std::array<std::byte*, N> firsts;
        for (size_t k = 0; k < N; ++k) firsts[k] = views[k].at(offsets[k] + r * steps[k]);
        f(firsts);
      }
    });
  };
  if constexpr (N == 1) run(Loop<1>(sizes, {&strides[0]}));
  if constexpr (N == 2) run(Loop<2>(sizes, {&strides[0], &strides[1]}));
  if constexpr (N == 3) run(Loop<3>(sizes, {&strides[0], &strides[1], &strides[2]}));
}

// Reads each row of `source` along `dim` as C, lets f(row) change it in place, and writes it to
// `target`. Rows that follow one another are read and written together.
template <typename C, typename F>
Status change_rows(const View& source, const View& target, size_t dim, F&& f) {
  const int64_t n = source.sizes[dim];
  const bool together =
      dim + 1 == source.sizes.size() && source.is_row_major() && target.is_row_major();
  constexpr int64_t kTogether = 512;  // elements
  const int64_t most = together ? std::max<int64_t>(1, kTogether / n) : 1;
  Scratch<C> rows;
  EDGEWISE_RETURN_IF_ERROR(rows.reserve(most * n));
  if (most == 1) {
    for_rows<2>({target, source}, dim, [&](const auto& firsts) {
      load<C>(source.type, firsts[1], source.strides[dim], n, rows.data());
      f(rows.data());
      store<C>(target.type, rows.data(), n, firsts[0], target.strides[dim]);
    });
    return {};
  }
  const int64_t total = source.numel();
  for (int64_t start = 0; start < total; start += most * n) {
    const int64_t count = std::min(most * n, total - start);
    load<C>(source.type, source.at(start), 1, count, rows.data());
    for (int64_t row = 0; row < count; row += n) f(rows.data() + row);
    store<C>(target.type, rows.data(), count, target.at(start), 1);
  }
  return {};
}

}  // namespace HWY_NAMESPACE
}  // namespace edgewise
