// Sums, means, products, extremes, any and all. Floating types accumulate in
// double, integers in int64.
#include <cmath>
#include <limits>
#include <string>

#include "reduce.h"

namespace edgewise {
namespace {

template <typename C>
struct Sum {
  double scale = 1;  // of the result; for means
  C total = 0;
  void operator()(const C* block, int64_t count) {
    C lanes[4] = {0, 0, 0, 0};  // breaks the chain of dependent additions
    int64_t i = 0;
    for (; i + 4 <= count; i += 4) {
      for (int k = 0; k < 4; ++k) lanes[k] = wrap_add(lanes[k], block[i + k]);
    }
    for (; i < count; ++i) lanes[0] = wrap_add(lanes[0], block[i]);
    for (const C lane : lanes) total = wrap_add(total, lane);
  }
  C result() const {
    if constexpr (std::is_integral_v<C>)
      return total;
    else
      return total * static_cast<C>(scale);
  }
};

template <typename C>
struct Product {
  C total = 1;
  void operator()(const C* block, int64_t count) {
    for (int64_t i = 0; i < count; ++i) total = wrap_mul(total, block[i]);
  }
  C result() const { return total; }
};

template <typename C, bool kLargest>
struct Extreme {
  bool any = false;
  C best = 0;
  void operator()(const C* block, int64_t count) {
    constexpr int64_t kLanes = 16;                    // side by side, for the compiler to vectorise
    if (count == 0 || (any && best != best)) return;  // NaN stays
    C lanes[kLanes];
    bool nan = false;
    for (C& lane : lanes) lane = any ? best : block[0];
    const auto better = [](C a, C b) { return kLargest ? (a > b ? a : b) : (a < b ? a : b); };
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      for (int64_t k = 0; k < kLanes; ++k) {
        lanes[k] = better(block[i + k], lanes[k]);
        nan |= block[i + k] != block[i + k];
      }
    }
    for (; i < count; ++i) {
      lanes[0] = better(block[i], lanes[0]);
      nan |= block[i] != block[i];
    }
    best = lanes[0];
    for (const C lane : lanes) best = better(lane, best);
    if constexpr (!std::is_integral_v<C>) {
      if (nan) best = std::numeric_limits<C>::quiet_NaN();
    }
    any = true;
  }
  C result() const { return best; }
};

template <typename C, bool kAll>
struct Truth {
  bool found = kAll;
  void operator()(const C* block, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      if (kAll)
        found = found && block[i] != 0;
      else
        found = found || block[i] != 0;
    }
  }
  C result() const { return found; }
};

// Calls `run(C)` with double for floating inputs, int64_t for others.
template <typename F>
void accumulate(bool floating, F&& run) {
  if (floating) {
    run(double{});
  } else {
    run(int64_t{});
  }
}

Status check_out(KernelContext& context, ScalarType result, const Tensor* out) {
  if (can_store(result, out->type())) return {};
  return context.fail(Code::kInvalidArgument, "the result is %s; got an output of %s",
                      std::string(to_string(result)).c_str(), out->describe().c_str());
}

Status sum_over(KernelContext& context, const Tensor* self, std::span<const int64_t> dims,
                bool keepdim, Tensor* out) {
  Reduction plan;
  EDGEWISE_TRY(plan_reduction(*self, dims, keepdim, out, plan));
  const bool floating = is_floating(self->type()) || is_floating(out->type());
  EDGEWISE_RETURN_IF_ERROR(
      check_out(context, floating ? ScalarType::kFloat : ScalarType::kLong, out));
  accumulate(floating,
             [&](auto c) { run_reduction<decltype(c)>(plan, view_of(*out), Sum<decltype(c)>{}); });
  return context.status();
}

Status sum(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const auto dims = context.optional_int_list(1);
  const bool keepdim = context.boolean(2);
  Tensor* out = output(context, 4);
  if (!context.ok()) return context.status();
  return sum_over(context, self, dims.value_or(std::vector<int64_t>()), keepdim, out);
}

Status mean_over(KernelContext& context, const Tensor* self, std::span<const int64_t> dims,
                 bool keepdim, Tensor* out) {
  if (!is_floating(out->type())) {
    return context.fail(Code::kInvalidArgument, "a mean is floating; got an output of %s",
                        out->describe().c_str());
  }
  Reduction plan;
  EDGEWISE_TRY(plan_reduction(*self, dims, keepdim, out, plan));
  Sum<double> state;
  state.scale = 1.0 / static_cast<double>(plan.reduced_count());
  run_reduction<double>(plan, view_of(*out), state);
  return context.status();
}

Status mean_dim(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const auto dims = context.optional_int_list(1);
  const bool keepdim = context.boolean(2);
  Tensor* out = output(context, 4);
  if (!context.ok()) return context.status();
  return mean_over(context, self, dims.value_or(std::vector<int64_t>()), keepdim, out);
}

Status mean_all(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  Tensor* out = output(context, 2);
  if (!context.ok()) return context.status();
  return mean_over(context, self, {}, false, out);
}

Status prod_over(KernelContext& context, const Tensor* self, std::span<const int64_t> dims,
                 bool keepdim, Tensor* out) {
  Reduction plan;
  EDGEWISE_TRY(plan_reduction(*self, dims, keepdim, out, plan));
  const bool floating = is_floating(self->type()) || is_floating(out->type());
  EDGEWISE_RETURN_IF_ERROR(
      check_out(context, floating ? ScalarType::kFloat : ScalarType::kBool, out));
  accumulate(floating, [&](auto c) {
    run_reduction<decltype(c)>(plan, view_of(*out), Product<decltype(c)>{});
  });
  return context.status();
}

Status prod_all(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  Tensor* out = output(context, 2);
  if (!context.ok()) return context.status();
  return prod_over(context, self, {}, false, out);
}

Status prod_dim(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const int64_t dim = context.integer(1);
  const bool keepdim = context.boolean(2);
  Tensor* out = output(context, 4);
  if (!context.ok()) return context.status();
  return prod_over(context, self, std::array{dim}, keepdim, out);
}

template <bool kLargest>
Status extreme_over(KernelContext& context, const Tensor* self, std::span<const int64_t> dims,
                    bool keepdim, Tensor* out) {
  EDGEWISE_RETURN_IF_ERROR(check_out(context, self->type(), out));
  Reduction plan;
  EDGEWISE_TRY(plan_reduction(*self, dims, keepdim, out, plan));
  if (plan.reduced_count() == 0 && out->numel() > 0) {
    return context.fail(Code::kInvalidArgument, "no elements have no extreme; got %s",
                        self->describe().c_str());
  }
  accumulate(is_floating(self->type()), [&](auto c) {
    run_reduction<decltype(c)>(plan, view_of(*out), Extreme<decltype(c), kLargest>{});
  });
  return context.status();
}

template <bool kLargest>
Status extreme(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const std::vector<int64_t> dims = context.int_list(1);
  const bool keepdim = context.boolean(2);
  Tensor* out = output(context, 3);
  if (!context.ok()) return context.status();
  return extreme_over<kLargest>(context, self, dims, keepdim, out);
}

template <bool kLargest>
Status extreme_all(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  Tensor* out = output(context, 1);
  if (!context.ok()) return context.status();
  return extreme_over<kLargest>(context, self, {}, false, out);
}

// An output of uint8 is given for uint8 inputs; it also holds 0 and 1.
template <bool kAll>
Status truth_over(KernelContext& context, const Tensor* self, std::span<const int64_t> dims,
                  bool keepdim, Tensor* out) {
  EDGEWISE_RETURN_IF_ERROR(check_out(context, ScalarType::kBool, out));
  Reduction plan;
  EDGEWISE_TRY(plan_reduction(*self, dims, keepdim, out, plan));
  accumulate(is_floating(self->type()), [&](auto c) {
    run_reduction<decltype(c)>(plan, view_of(*out), Truth<decltype(c), kAll>{});
  });
  return context.status();
}

template <bool kAll>
Status truth_dims(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const auto dims = context.optional_int_list(1);  // also one dimension
  const bool keepdim = context.boolean(2);
  Tensor* out = output(context, 3);
  if (!context.ok()) return context.status();
  return truth_over<kAll>(context, self, dims.value_or(std::vector<int64_t>()), keepdim, out);
}

template <bool kAll>
Status truth_all(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  Tensor* out = output(context, 1);
  if (!context.ok()) return context.status();
  return truth_over<kAll>(context, self, {}, false, out);
}

const KernelRegistration registrations[] = {
    {"aten::sum.IntList_out", 5, sum},
    {"aten::mean.out", 5, mean_dim},
    {"aten::mean.dtype_out", 3, mean_all},
    {"aten::prod.out", 3, prod_all},
    {"aten::prod.int_out", 5, prod_dim},
    {"aten::amax.out", 4, extreme<true>},
    {"aten::amin.out", 4, extreme<false>},
    {"aten::max.unary_out", 2, extreme_all<true>},
    {"aten::min.unary_out", 2, extreme_all<false>},
    {"aten::any.out", 4, truth_dims<false>},
    {"aten::any.dims_out", 4, truth_dims<false>},
    {"aten::any.all_out", 2, truth_all<false>},
    {"aten::all.out", 4, truth_dims<true>},
    {"aten::all.dims_out", 4, truth_dims<true>},
    {"aten::all.all_out", 2, truth_all<true>},
};

}  // namespace
}  // namespace edgewise
