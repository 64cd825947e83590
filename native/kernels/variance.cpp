// Variances, standard deviations and means in one pass.
#include <cmath>
#include <limits>

#include "array_reductions.h"
#include "reduce.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

// Mean and sum of squared differences, block by block (Chan's update).
struct Moments {
  double correction = 1;
  bool root = false, want_mean = false;
  int64_t n = 0;
  double mean = 0, squares = 0;
  void operator()(const double* block, int64_t count) {
    if (count == 0) return;
    const double added = static_cast<double>(count), before = static_cast<double>(n);
    const double block_mean = sum_of(block, count) / added, delta = block_mean - mean;
    squares += squared_deviations(block, count, block_mean) +
               delta * delta * before * added / (before + added);
    mean += delta * added / (before + added);
    n += count;
  }
  double result() const {
    const double count = static_cast<double>(n);
    if (n == 0) return std::numeric_limits<double>::quiet_NaN();
    if (want_mean) return mean;
    const double variance = squares / std::max(0.0, count - correction);
    return root ? std::sqrt(variance) : variance;
  }
};

Status moments_over(KernelContext& context, const Tensor* self,
                    const std::optional<std::vector<int64_t>>& dims, bool keepdim,
                    const Moments& moments, Tensor* out) {
  if (!is_floating(self->type()) || !is_floating(out->type())) {
    return context.fail(Code::kInvalidArgument, "takes and gives floating tensors; got %s to %s",
                        self->describe().c_str(), out->describe().c_str());
  }
  Reduction plan;
  EDGEWISE_TRY(plan_reduction(*self, dims.value_or(std::vector<int64_t>()), keepdim, out, plan));
  run_reduction<double>(plan, view_of(*out), moments);
  return context.status();
}

template <bool kRoot>
Status var_correction(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const auto dims = context.optional_int_list(1);
  Moments moments;
  moments.correction = context.optional_number(2).value_or(1);
  moments.root = kRoot;
  const bool keepdim = context.boolean(3);
  Tensor* out = output(context, 4);
  if (!context.ok()) return context.status();
  return moments_over(context, self, dims, keepdim, moments, out);
}

Status var_unbiased(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const auto dims = context.optional_int_list(1);
  Moments moments;
  moments.correction = context.boolean(2) ? 1 : 0;
  const bool keepdim = context.boolean(3);
  Tensor* out = output(context, 4);
  if (!context.ok()) return context.status();
  return moments_over(context, self, dims, keepdim, moments, out);
}

Status var_mean(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const auto dims = context.optional_int_list(1);
  Moments moments;
  moments.correction = context.optional_number(2).value_or(1);
  const bool keepdim = context.boolean(3);
  Tensor* variance = output(context, 4);
  Tensor* mean = output(context, 5);
  if (!context.ok()) return context.status();
  EDGEWISE_RETURN_IF_ERROR(moments_over(context, self, dims, keepdim, moments, variance));
  moments.want_mean = true;
  return moments_over(context, self, dims, keepdim, moments, mean);
}

constexpr KernelEntry kKernels[] = {
    {"aten::var.correction_out", 5, var_correction<false>},
    {"aten::std.correction_out", 5, var_correction<true>},
    {"aten::var.out", 5, var_unbiased},
    {"aten::var_mean.correction_out", 6, var_mean},
};
const KernelTable table(HWY_TARGET, kSelected<kKernels>);

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace edgewise
