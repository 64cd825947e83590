// Sums, means, products, extremes, any and all.
#include <cmath>
#include <limits>
#include <string>

#include "array_reductions.h"
#include "reduce.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

// Floating sums and products are kept in double.
template <typename C>
using Wide = std::conditional_t<std::is_integral_v<C>, int64_t, double>;

template <typename C>
struct Sum {
  using Total = Wide<C>;
  double scale = 1;  // of the result; for means
  Total total = 0;
  void operator()(const C* block, int64_t count) {
    if constexpr (std::is_integral_v<C>) {
      total = wrap_add<Total>(total, plain_sum(block, count));
    } else {
      total += sum_of(block, count);
    }
  }
  Total result() const { return result_of(total); }

  Total start() const { return 0; }
  static C pair(C a, C b) { return wrap_add(a, b); }
  static Total add(Total sum, C value) { return wrap_add<Total>(sum, value); }
  Total result_of(Total sum) const {
    if constexpr (std::is_integral_v<C>)
      return sum;
    else
      return sum * scale;
  }
};

template <typename C>
struct Product {
  using Total = Wide<C>;
  Total total = 1;
  void operator()(const C* block, int64_t count) {
    total = wrap_mul(total, in_lanes<Total>(block, count, Total(1), add, wrap_mul<Total>));
  }
  Total result() const { return total; }

  Total start() const { return 1; }
  static Total pair(Total a, Total b) { return wrap_mul(a, b); }
  static Total add(Total product, Total value) { return wrap_mul(product, value); }
  Total result_of(Total product) const { return product; }
};

template <typename C, bool kLargest>
struct Extreme {
  using Total = C;
  bool any = false;
  C best = 0;
  void operator()(const C* block, int64_t count) {
    if (count == 0) return;
    const C here = extreme_of<kLargest>(block, count);
    best = any ? pair(best, here) : here;
    any = true;
  }
  C result() const { return best; }

  C start() const {
    using Limits = std::numeric_limits<C>;
    if constexpr (std::is_integral_v<C>)
      return kLargest ? Limits::lowest() : Limits::max();
    else
      return kLargest ? -Limits::infinity() : Limits::infinity();
  }
  static C pair(C a, C b) {
    const C better = (kLargest ? b > a : b < a) ? b : a;  // of equal ones the first
    return b != b ? b : better;
  }
  static C add(C a, C b) { return pair(a, b); }
  C result_of(C value) const { return value; }
};

// Of bytes, any but 0 being true.
template <bool kAll>
struct Truth {
  using Total = uint8_t;
  bool found = kAll;
  void operator()(const uint8_t* block, int64_t count) {
    // Nothing changes what is decided.
    if (found != kAll) return;
    uint8_t counted = 0;
    for (int64_t i = 0; i < count; ++i) counted |= (block[i] != 0) != kAll ? 1 : 0;
    if (counted) found = !kAll;
  }
  uint8_t result() const { return found; }

  Total start() const { return kAll; }
  static Total pair(Total a, Total b) { return kAll ? (a != 0) & (b != 0) : (a != 0) | (b != 0); }
  static Total add(Total a, Total b) { return pair(a, b); }
  Total result_of(Total held) const { return held; }
};

// Calls `run(C)` with the type in which elements of `type` are read; integers are summed to
// floating outputs in double. What has at most 16 bits is read, a block at a time, as int32,
// which holds the sum of a block.
template <typename F>
void accumulate(ScalarType type, bool floating, F&& run) {
  if (floating && !is_floating(type)) {
    run(double{});
  } else if (is_integral(type) && element_size(type) <= 2) {
    run(int32_t{});
  } else {
    with_compute_type(type, run);
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
  accumulate(self->type(), floating,
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
  accumulate(self->type(), true, [&](auto c) {
    Sum<decltype(c)> state;
    state.scale = 1.0 / static_cast<double>(plan.reduced_count());
    run_reduction<decltype(c)>(plan, view_of(*out), state);
  });
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
  accumulate(self->type(), floating, [&](auto c) {
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
  with_narrow_compute_type(self->type(), [&](auto c) {
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
  if (self->type() == ScalarType::kBool) plan.input.type = ScalarType::kByte;
  const Truth<kAll> initial;
  using Loops = LoopsOf<uint8_t, Truth<kAll>>;
  const ReductionLoops loops{element_size(self->type()) == 1 ? plan.input.type : ScalarType::kBool,
                             ScalarType::kBool,
                             sizeof(initial),
                             Loops::row,
                             Loops::row_result,
                             Loops::start,
                             Loops::add,
                             Loops::results};
  run_reduction(plan, view_of(*out), loops, &initial);
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

constexpr KernelEntry kKernels[] = {
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
const KernelTable table(HWY_TARGET, kSelected<kKernels>);

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace edgewise
