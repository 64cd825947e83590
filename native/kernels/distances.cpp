// Distances between rows: cdist, pdist; and norms of vectors.
#include <cmath>

#include "compute_tensor.h"
#include "reduce.h"

namespace edgewise {
inline namespace EDGEWISE_TARGET {
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

template <typename C>
double distance(const C* a, const C* b, int64_t n, double p) {
  if (p == 2) {
    // In lanes side by side.
    constexpr int64_t kLanes = 16;
    C lanes[kLanes] = {};
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      for (int64_t j = 0; j < kLanes; ++j) {
        const C delta = a[i + j] - b[i + j];
        lanes[j] += delta * delta;
      }
    }
    for (; i < n; ++i) lanes[i % kLanes] += (a[i] - b[i]) * (a[i] - b[i]);
    for (int64_t width = kLanes / 2; width > 0; width /= 2) {
      for (int64_t j = 0; j < width; ++j) lanes[j] += lanes[j + width];
    }
    return std::sqrt(static_cast<double>(lanes[0]));
  }
  Norm norm{p};
  for (int64_t i = 0; i < n; ++i) {
    norm.add(static_cast<double>(a[i]) - static_cast<double>(b[i]));
  }
  return norm.result();
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
    C* to = result.data;
    for (int64_t row = 0; row < out->numel() / n; ++row) {
      const C* ours = x.data + row * width;
      const C* others = y.data + row / m * n * width;
      for (int64_t column = 0; column < n; ++column) {
        *to++ = static_cast<C>(distance(ours, others + column * width, width, p));
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
    C* to = y.data;
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = i + 1; j < n; ++j) {
        *to++ = static_cast<C>(distance(x.data + i * width, x.data + j * width, width, p));
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
  run_reduction<double>(plan, view_of(*out), Norm{scalar_to<double>(order)});
  return context.status();
}

constexpr KernelEntry kKernels[] = {
    {"aten::_cdist_forward.out", 5, cdist},
    {"aten::_pdist_forward.out", 3, pdist},
    {"aten::linalg_vector_norm.out", 6, vector_norm},
};
const KernelTable table(EDGEWISE_LEVEL, kKernels);

}  // namespace
}  // namespace EDGEWISE_TARGET
}  // namespace edgewise
