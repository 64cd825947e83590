// Activations, and clamp.
#include <cmath>
#include <string_view>
#include <type_traits>

#include "elementwise.h"
#include "vector_math.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

struct Relu {
  static constexpr bool kNarrow = true;
  static constexpr ResultRule kRule = ResultRule::kPromoted;
  template <typename C>
  C operator()(C x) const {
    return x < 0 ? C(0) : x;  // NaN stays
  }
};
struct Silu {
  static constexpr bool kFloatingOnly = true;
  static constexpr size_t kWide = sizeof(double);
  template <typename C>
  C operator()(C x) const {
    return math::silu(x);
  }
};
// x + 3 within [0, 6]; NaN stays.
template <typename C>
C shifted_within_six(C x) {
  C y = x + C(3);
  y = y < C(0) ? C(0) : y;
  return y > C(6) ? C(6) : y;
}
struct HardSwish {
  static constexpr bool kFloatingOnly = true;
  template <typename C>
  C operator()(C x) const {
    return x * (shifted_within_six(x) * C(1.0 / 6.0));  // x times 6 may be too large
  }
};
struct HardSigmoid {
  static constexpr bool kFloatingOnly = true;
  template <typename C>
  C operator()(C x) const {
    return shifted_within_six(x) * C(1.0 / 6.0);
  }
};
struct GeluErf {
  static constexpr bool kFloatingOnly = true;
  static constexpr size_t kWide = sizeof(double);
  template <typename C>
  C operator()(C x) const {
    return math::gelu(x);
  }
};
struct GeluTanh {
  static constexpr bool kFloatingOnly = true;
  static constexpr size_t kWide = sizeof(double);
  template <typename C>
  C operator()(C x) const {
    const C inner = C(0.79788456080286535588) * (x + C(0.044715) * x * x * x);
    return x * math::sigmoid(C(2) * inner);  // (1 + tanh(y)) / 2 = 1 / (1 + e^-2y)
  }
};
struct LeakyRelu {
  static constexpr bool kFloatingOnly = true;
  double slope;
  template <typename C>
  C operator()(C x) const {
    const C below = x * static_cast<C>(slope);
    return x > 0 ? x : below;
  }
};
struct Elu {
  static constexpr bool kFloatingOnly = true;
  double alpha, scale, input_scale;
  template <typename C>
  C operator()(C x) const {
    return x * static_cast<C>(scale);
  }
  // The exponential, for blocks that have elements which are not positive.
  template <typename C>
  bool needs_slow_path(C x) const {
    return !(x > 0);
  }
  template <typename C>
  C slow_path(C x) const {
    const C below = math::expm1(x * static_cast<C>(input_scale));
    return below * static_cast<C>(alpha * scale);
  }
};
struct Clamp {
  static constexpr bool kNarrow = true;
  bool low, high;  // which bounds are given
  template <typename C>
  C operator()(C x, C least, C most) const {
    x = low && (x < least || least != least) ? least : x;
    return high && (x > most || most != most) ? most : x;
  }
};

// An activation keeps its input's type, which must be floating.
template <typename Op>
Status activate(KernelContext& context, const Operand& x, Tensor* out, Op op) {
  if (!context.ok()) return context.status();
  const ScalarType type = x.tensor->type();
  if (!is_floating(type)) {
    return context.fail(Code::kInvalidArgument, "takes a floating tensor; got %s",
                        x.tensor->describe().c_str());
  }
  return run_elementwise<Op, 1>(context, {x}, out, op, ElementwiseTypes{type, type});
}

template <typename Op>
Status activation(KernelContext& context) {
  const Operand x = tensor_operand(context, 0);
  return activate(context, x, elementwise_output(context, 1), Op());
}

Status gelu(KernelContext& context) {
  const Operand x = tensor_operand(context, 0);
  const std::string_view approximate = context.string(1);
  Tensor* out = elementwise_output(context, 2);
  if (!context.ok()) return context.status();
  if (approximate == "none") return activate(context, x, out, GeluErf());
  if (approximate == "tanh") return activate(context, x, out, GeluTanh());
  return context.fail(Code::kInvalidArgument, "approximate is \"none\" or \"tanh\"; got \"%.*s\"",
                      static_cast<int>(approximate.size()), approximate.data());
}

Status leaky_relu(KernelContext& context) {
  const Operand x = tensor_operand(context, 0);
  const LeakyRelu op{context.number(1)};
  return activate(context, x, elementwise_output(context, 2), op);
}

Status elu(KernelContext& context) {
  const Operand x = tensor_operand(context, 0);
  const Elu op{context.number(1), context.number(2), context.number(3)};
  return activate(context, x, elementwise_output(context, 4), op);
}

Status clamp_between(KernelContext& context, const Operand& x, const std::optional<Operand>& low,
                     const std::optional<Operand>& high, Tensor* out) {
  if (!context.ok()) return context.status();
  if (!low && !high) {
    return context.fail(Code::kInvalidArgument, "at least one bound is given; got none");
  }
  const Clamp op{low.has_value(), high.has_value()};
  // A bound that is not given takes the other's slot, and is not looked at.
  const std::array<Operand, 3> operands{x, low ? *low : *high, high ? *high : *low};
  return run_elementwise<Clamp, 3>(context, operands, out, op, ResultRule::kPromoted);
}

Status clamp(KernelContext& context) {
  const Operand x = tensor_operand(context, 0);
  std::optional<Operand> low, high;
  if (const auto value = context.optional_scalar(1)) low = Operand{nullptr, *value};
  if (const auto value = context.optional_scalar(2)) high = Operand{nullptr, *value};
  return clamp_between(context, x, low, high, elementwise_output(context, 3));
}

Status clamp_tensor(KernelContext& context) {
  const Operand x = tensor_operand(context, 0);
  std::optional<Operand> low, high;
  if (const Tensor* value = context.optional_tensor(1)) low = Operand{value, {}};
  if (const Tensor* value = context.optional_tensor(2)) high = Operand{value, {}};
  return clamp_between(context, x, low, high, elementwise_output(context, 3));
}

// Unlike clamp, it keeps its input's type.
Status hardtanh(KernelContext& context) {
  const Operand x = tensor_operand(context, 0);
  const Operand low = scalar_operand(context, 1), high = scalar_operand(context, 2);
  Tensor* out = elementwise_output(context, 3);
  if (!context.ok()) return context.status();
  const ScalarType type = x.tensor->type();
  return run_elementwise<Clamp, 3>(context, {x, low, high}, out, Clamp{true, true},
                                   ElementwiseTypes{type, type});
}

constexpr KernelEntry kKernels[] = {
    {"aten::relu.out", 2, unary<Relu>},
    {"aten::silu.out", 2, activation<Silu>},
    {"aten::hardswish.out", 2, activation<HardSwish>},
    {"aten::hardsigmoid.out", 2, activation<HardSigmoid>},
    {"aten::gelu.out", 3, gelu},
    {"aten::leaky_relu.out", 3, leaky_relu},
    {"aten::elu.out", 5, elu},
    {"aten::hardtanh.out", 4, hardtanh},
    {"aten::clamp.out", 4, clamp},
    {"aten::clamp.Tensor_out", 4, clamp_tensor},
};
const KernelTable table(HWY_TARGET, kSelected<kKernels>);

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace edgewise
