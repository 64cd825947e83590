// Distances between rows: cdist, pdist; and norms of vectors.
#include <cmath>
#include <cstring>

#include "array_reductions.h"
#include "compute_tensor.h"
#include "reduce.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

// The p-norm of what is added, p = 0, 1, 2, infinities or any other.
struct Norm {
  double p = 2;
  double sum = 0;
  bool any = false;
  void add(double value) {
    const double size = std::abs(value);
    if (p == 2) {
      sum += size * size;
    } else if (p == 1) {
      sum += size;
    } else if (p == 0) {
      sum += size != 0;
    } else if (std::isinf(p)) {
      const bool better = p > 0 ? size > sum : size < sum;
      if (!any || better || size != size) sum = size;
      if (sum != sum) p = 1;  // NaN stays
    } else {
      sum += std::pow(size, p);
    }
    any = true;
  }
  void operator()(const double* block, int64_t count) {
    for (int64_t i = 0; i < count; ++i) add(block[i]);
  }
  double result() const {
    if (p == 2) return std::sqrt(sum);
    return p == 1 || p == 0 || std::isinf(p) ? sum : std::pow(sum, 1 / p);
  }
};

// The one of order 2, in vectors.
template <typename C>
struct Length {
  struct Squares {
    double sum;
  };
  using Total = double;
  Total total = 0;
  static double square(C value) {
    const double wide = static_cast<double>(value);
    return wide * wide;
  }
  void operator()(const C* block, int64_t count) {
    total += in_lanes<double>(
        block, count, 0.0, [](double sum, C value) { return sum + square(value); },
        [](double a, double b) { return a + b; });
  }
  double result() const { return result_of(total); }

  Total start() const { return 0; }
  static Squares pair(C a, C b) { return {square(a) + square(b)}; }
  static Squares pair(Squares a, Squares b) { return {a.sum + b.sum}; }
  static Total add(Total total, Squares squares) { return total + squares.sum; }
  static Total add(Total total, C value) { return total + square(value); }
  double result_of(Total of) const { return std::sqrt(of); }
};

// Columns of distances that are computed side by side, in vectors.
constexpr int64_t kColumns = 16;

// Transposes `count` rows of `width` elements: panel[element][row]. Those that are
// missing are zeros.
template <typename C>
void transpose_rows(const C* rows, int64_t count, int64_t width, C* panel) {
  for (int64_t k = 0; k < width; ++k, panel += kColumns) {
    for (int64_t j = 0; j < kColumns; ++j) panel[j] = j < count ? rows[j * width + k] : C(0);
  }
}

#if EDGEWISE_HAS_AVX2
constexpr size_t kVectorBytes = 32;
#else
constexpr size_t kVectorBytes = 16;
#endif

// Distances of order 1 or 2 between a row and the columns of a panel.
template <bool kSquared, typename C>
void near_distances(const C* a, const C* panel, int64_t width, C* result) {
  typedef C Vector [[gnu::vector_size(kVectorBytes), gnu::may_alias]];
  constexpr size_t kLanes = kVectorBytes / sizeof(C), kVectors = kColumns / kLanes;
  constexpr int64_t kStretch = 64;  // few enough additions to a sum before it joins the total
  const auto* columns = reinterpret_cast<const Vector*>(panel);
  Vector totals[kVectors] = {};
  for (int64_t start = 0; start < width; start += kStretch) {
    Vector sums[kVectors] = {};
    const int64_t end = std::min(width, start + kStretch);
    for (int64_t k = start; k < end; ++k, columns += kVectors) {
      for (size_t v = 0; v < kVectors; ++v) {
        const Vector delta = a[k] - columns[v];
        if constexpr (kSquared) {
          sums[v] += delta * delta;
        } else {
          sums[v] += delta > 0 ? delta : -delta;
        }
      }
    }
    for (size_t v = 0; v < kVectors; ++v) totals[v] += sums[v];
  }
  std::memcpy(result, totals, sizeof(totals));
  if constexpr (kSquared) {
    for (int64_t j = 0; j < kColumns; ++j) result[j] = std::sqrt(result[j]);
  }
}

// Distances of any order p.
template <typename C>
[[gnu::noinline]] void distances(const C* a, const C* panel, int64_t width, int64_t count, double p,
                                 C* result) {
  if (p == 1) return near_distances<false>(a, panel, width, result);
  if (p == 2) return near_distances<true>(a, panel, width, result);
  for (int64_t j = 0; j < count; ++j) {
    Norm norm{p};
    for (int64_t k = 0; k < width; ++k) {
      norm.add(static_cast<double>(a[k]) - static_cast<double>(panel[k * kColumns + j]));
    }
    result[j] = static_cast<C>(norm.result());
  }
}

Status cdist(KernelContext& context) {
  const Tensor* a = context.tensor(0);
  const Tensor* b = context.tensor(1);
  const double p = context.number(2);
  Tensor* out = output(context, 4);
  if (!context.ok()) return context.status();
  EDGEWISE_RETURN_IF_ERROR(check_floating(context, a));
  EDGEWISE_RETURN_IF_ERROR(check_floating(context, out));
  const size_t rank = a->rank();
  if (rank < 2 || b->rank() < 2 || b->type() != a->type() ||
      a->size(rank - 1) != b->size(b->rank() - 1) || !(p >= 0)) {
    return context.fail(Code::kInvalidArgument,
                        "takes [..., M, D] and [..., N, D] of one type; got %s and %s",
                        a->describe().c_str(), b->describe().c_str());
  }
  const int64_t m = a->size(rank - 2), n = b->size(b->rank() - 2), width = a->size(rank - 1);
  Dims batch(a->sizes().first(rank - 2));
  EDGEWISE_TRY(broadcast(b->sizes().first(b->rank() - 2), batch));
  Dims sizes_a = batch, sizes_b = batch, sizes = batch;
  if (batch.size() + 2 > kMaxDims) return context.fail(Code::kUnsupported, "too many dimensions");
  sizes_a.push(m), sizes_a.push(width), sizes_b.push(n), sizes_b.push(width);
  sizes.push(m), sizes.push(n);
  EDGEWISE_TRY(out->resize(sizes));
  if (out->numel() == 0) return context.status();
  return with_floating_type(a->type(), [&](auto c) -> Status {
    using C = decltype(c);
    ComputeInput<C> x, y;
    ComputeOutput<C> result;
    EDGEWISE_TRY(x.read(view_of(*a).expand(sizes_a), true));
    EDGEWISE_TRY(y.read(view_of(*b).expand(sizes_b), true));
    EDGEWISE_TRY(result.prepare(view_of(*out), true));
    Scratch<C> panel;
    EDGEWISE_TRY(panel.reserve(width * kColumns));
    alignas(64) C found[kColumns];
    for (int64_t matrix = 0; matrix < batch.product(); ++matrix) {
      for (int64_t first = 0; first < n; first += kColumns) {
        const int64_t count = std::min(kColumns, n - first);
        transpose_rows(y.data + (matrix * n + first) * width, count, width, panel.data());
        for (int64_t row = matrix * m; row < (matrix + 1) * m; ++row) {
          distances(x.data + row * width, panel.data(), width, count, p, found);
          std::copy_n(found, count, result.data + row * n + first);
        }
      }
    }
    return finish(context, result.finish());
  });
}

Status pdist(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const double p = context.number(1);
  Tensor* out = output(context, 2);
  if (!context.ok()) return context.status();
  EDGEWISE_RETURN_IF_ERROR(check_floating(context, self));
  EDGEWISE_RETURN_IF_ERROR(check_floating(context, out));
  if (self->rank() != 2 || !(p >= 0) || self->size(0) >= (int64_t{1} << 30)) {
    return context.fail(Code::kInvalidArgument, "takes [N, D] and p >= 0; got %s, p = %g",
                        self->describe().c_str(), p);
  }
  const int64_t n = self->size(0), width = self->size(1);
  EDGEWISE_TRY(out->resize(std::array{n * (n - 1) / 2}));
  return with_floating_type(self->type(), [&](auto c) -> Status {
    using C = decltype(c);
    ComputeInput<C> x;
    ComputeOutput<C> y;
    EDGEWISE_TRY(x.read(view_of(*self), true));
    EDGEWISE_TRY(y.prepare(view_of(*out), true));
    Scratch<C> panel;
    EDGEWISE_TRY(panel.reserve(width * kColumns));
    alignas(64) C found[kColumns];
    for (int64_t first = 0; first < n; first += kColumns) {
      const int64_t last = std::min(first + kColumns, n);
      transpose_rows(x.data + first * width, last - first, width, panel.data());
      for (int64_t i = 0; i + 1 < last; ++i) {
        distances(x.data + i * width, panel.data(), width, last - first, p, found);
        // Row i's distances to i + 1, i + 2, ... follow those of the rows before it.
        const int64_t before = i * n - i * (i + 1) / 2 - i - 1;
        for (int64_t j = std::max(first, i + 1); j < last; ++j) {
          y.data[before + j] = found[j - first];
        }
      }
    }
    return finish(context, y.finish());
  });
}

Status vector_norm(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const Scalar order = context.scalar(1);
  const auto dims = context.optional_int_list(2);
  const bool keepdim = context.boolean(3);
  Tensor* out = output(context, 5);
  if (!context.ok()) return context.status();
  EDGEWISE_RETURN_IF_ERROR(check_floating(context, self));
  EDGEWISE_RETURN_IF_ERROR(check_floating(context, out));
  Reduction plan;
  EDGEWISE_TRY(plan_reduction(*self, dims.value_or(std::vector<int64_t>()), keepdim, out, plan));
  const double p = scalar_to<double>(order);
  if (p == 2) {
    with_floating_type(self->type(), [&](auto c) {
      run_reduction<decltype(c)>(plan, view_of(*out), Length<decltype(c)>());
    });
  } else {
    run_reduction<double>(plan, view_of(*out), Norm{p});
  }
  return context.status();
}

constexpr KernelEntry kKernels[] = {
    {"aten::_cdist_forward.out", 5, cdist},
    {"aten::_pdist_forward.out", 3, pdist},
    {"aten::linalg_vector_norm.out", 6, vector_norm},
};
const KernelTable table(HWY_TARGET, kSelected<kKernels>);

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace edgewise
