// Functions of one operand: arithmetic, rounding, exponentials, trigonometry, tests.
#include <cmath>
#include <type_traits>

#include "elementwise.h"
#include "vector_math.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

// Computed in floating point; integers become float32.
#define EDGEWISE_FLOATING(Name, expression)                    \
  struct Name {                                                \
    static constexpr ResultRule kRule = ResultRule::kFloating; \
    static constexpr bool kFloatingOnly = true;                \
    static constexpr size_t kWide = sizeof(double);            \
    template <typename C>                                      \
    C operator()(C x) const {                                  \
      return expression;                                       \
    }                                                          \
  };
EDGEWISE_FLOATING(Erf, math::erf(x))
EDGEWISE_FLOATING(Erfc, math::erfc(x))
EDGEWISE_FLOATING(Exp, math::exp(x))
EDGEWISE_FLOATING(Exp2, math::exp2(x))
EDGEWISE_FLOATING(Acos, math::acos(x))
EDGEWISE_FLOATING(Asin, math::asin(x))
EDGEWISE_FLOATING(Reciprocal, C(1) / x)
EDGEWISE_FLOATING(Rsqrt, C(1) / std::sqrt(x))
EDGEWISE_FLOATING(Atan, math::atan(x))
EDGEWISE_FLOATING(Log, math::log(x))
EDGEWISE_FLOATING(Log1p, math::log1p(x))
EDGEWISE_FLOATING(Tanh, math::tanh(x))
EDGEWISE_FLOATING(Log10, math::log10(x))
EDGEWISE_FLOATING(Log2, math::log2(x))
EDGEWISE_FLOATING(Sigmoid, math::sigmoid(x))
EDGEWISE_FLOATING(Sqrt, std::sqrt(x))
#undef EDGEWISE_FLOATING
struct Lgamma {
  static constexpr ResultRule kRule = ResultRule::kFloating;
  static constexpr bool kFloatingOnly = true;
  static constexpr bool kInDouble = true;
  template <typename C>
  C operator()(C x) const {
    return std::lgamma(x);
  }
};

// For functions that have no slow path.
constexpr bool never_slow(double) { return false; }
// The same by functions for doubles that become vector instructions; arguments of the slow path go
// to the standard library.
#define EDGEWISE_VECTOR(Name, function, needs_slow)                                                \
  struct Name {                                                                                    \
    static constexpr ResultRule kRule = ResultRule::kFloating;                                     \
    static constexpr bool kFloatingOnly = true;                                                    \
    static constexpr bool kInDouble = true;                                                        \
    static constexpr size_t kWide = sizeof(double);                                                \
    template <typename C>                                                                          \
    C operator()(C x) const {                                                                      \
      return math::function(x);                                                                    \
    }                                                                                              \
    template <typename C>                                                                          \
    requires(&needs_slow != &never_slow) bool needs_slow_path(C x) const { return needs_slow(x); } \
    template <typename C>                                                                          \
    C slow_path(C x) const {                                                                       \
      return std::function(x);                                                                     \
    }                                                                                              \
  };
EDGEWISE_VECTOR(Acosh, acosh, math::needs_slow_square)
EDGEWISE_VECTOR(Asinh, asinh, math::needs_slow_square)
EDGEWISE_VECTOR(Atanh, atanh, never_slow)
EDGEWISE_VECTOR(Cosh, cosh, math::needs_slow_hyperbolic)
EDGEWISE_VECTOR(Expm1, expm1, math::needs_slow_expm1)
EDGEWISE_VECTOR(Sinh, sinh, math::needs_slow_hyperbolic)
#undef EDGEWISE_VECTOR

#define EDGEWISE_ANGLE(Name, function)                         \
  struct Name {                                                \
    static constexpr ResultRule kRule = ResultRule::kFloating; \
    static constexpr bool kFloatingOnly = true;                \
    template <typename C>                                      \
    C operator()(C x) const {                                  \
      return math::function(x);                                \
    }                                                          \
    template <typename C>                                      \
    bool needs_slow_path(C x) const {                          \
      return math::needs_slow_angle(x);                        \
    }                                                          \
    template <typename C>                                      \
    C slow_path(C x) const {                                   \
      return std::function(x);                                 \
    }                                                          \
  };
EDGEWISE_ANGLE(Cos, cos)
EDGEWISE_ANGLE(Sin, sin)
EDGEWISE_ANGLE(Tan, tan)
#undef EDGEWISE_ANGLE

// The result's type is the operand's.
#define EDGEWISE_SAME_TYPE(Name, floating, whole)              \
  struct Name {                                                \
    static constexpr ResultRule kRule = ResultRule::kPromoted; \
    static constexpr bool kNarrow = true;                      \
    template <typename C>                                      \
    C operator()(C x) const {                                  \
      if constexpr (std::is_integral_v<C>)                     \
        return static_cast<C>(whole);                          \
      else                                                     \
        return floating;                                       \
    }                                                          \
  };
EDGEWISE_SAME_TYPE(AbsOfType, std::abs(x), x < 0 ? wrap_sub<C>(0, x) : x)
EDGEWISE_SAME_TYPE(NegOfType, -x, wrap_sub<C>(0, x))
EDGEWISE_SAME_TYPE(Sign, static_cast<C>((x > 0) - (x < 0)), (x > 0) - (x < 0))
#undef EDGEWISE_SAME_TYPE
struct Abs : AbsOfType {
  uint16_t bits(uint16_t x) const { return x & 0x7FFF; }
};
struct Neg : NegOfType {
  uint16_t bits(uint16_t x) const { return x ^ 0x8000; }
};

// The same for functions that leave integers as they are.
#define EDGEWISE_ROUNDING(Name, function)                      \
  struct Name {                                                \
    static constexpr ResultRule kRule = ResultRule::kPromoted; \
    static constexpr bool kFloatingOnly = true;                \
    template <typename C>                                      \
    C operator()(C x) const {                                  \
      return std::function(x);                                 \
    }                                                          \
  };
EDGEWISE_ROUNDING(Ceil, ceil)
EDGEWISE_ROUNDING(Floor, floor)
EDGEWISE_ROUNDING(Trunc, trunc)
EDGEWISE_ROUNDING(Round, nearbyint)  // halves go to the even neighbour
#undef EDGEWISE_ROUNDING

template <typename Op>
Status rounding(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  if (!context.ok() || !is_integral(self->type())) return unary<Op>(context);
  Tensor* out = elementwise_output(context, 1);
  if (!context.ok()) return context.status();
  if (!can_store(self->type(), out->type())) {
    return context.fail(Code::kInvalidArgument, "integers stay; got %s to %s",
                        self->describe().c_str(), out->describe().c_str());
  }
  return finish(context, copy_to(out, view_of(*self)));
}

// isinf and isnan: false for integers.
#define EDGEWISE_TEST(Name, floating)                      \
  struct Name {                                            \
    static constexpr ResultRule kRule = ResultRule::kBool; \
    static constexpr bool kFloatingOnly = true;            \
    template <typename C>                                  \
    bool operator()(C x) const {                           \
      return floating;                                     \
    }                                                      \
  };
EDGEWISE_TEST(IsNan, x != x)
EDGEWISE_TEST(IsInf, std::isinf(x))
#undef EDGEWISE_TEST

template <typename Op>
Status test(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  if (!context.ok() || !is_integral(self->type())) return unary<Op>(context);
  Tensor* out = elementwise_output(context, 1);
  if (!context.ok()) return context.status();
  EDGEWISE_TRY(out->resize(self->sizes()));
  return finish(context, fill(view_of(*out), Scalar{}));
}

struct LogicalNot {
  static constexpr ResultRule kRule = ResultRule::kBool;
  static constexpr bool kNarrow = true;
  static constexpr bool kSignless = true;
  template <typename C>
  bool operator()(C x) const {
    return x == 0;
  }
};

struct BitNot {
  static constexpr bool kIntegralOnly = true;
  static constexpr bool kNarrow = true;
  static constexpr bool kSignless = true;
  template <typename C>
  C operator()(C x) const {
    return static_cast<C>(~x);
  }
};

// Bools are negated, not inverted bit by bit.
Status bitwise_not(KernelContext& context) {
  const Operand a = tensor_operand(context, 0);
  Tensor* out = elementwise_output(context, 1);
  if (!context.ok()) return context.status();
  const ScalarType type = a.tensor->type();
  if (type == ScalarType::kBool) {
    return run_elementwise<LogicalNot, 1>(context, {a}, out, LogicalNot(), LogicalNot::kRule);
  }
  if (!is_integral(type)) {
    return context.fail(Code::kInvalidArgument, "bits are those of integers or bools; got %s",
                        a.tensor->describe().c_str());
  }
  return run_elementwise<BitNot, 1>(context, {a}, out, BitNot(), ElementwiseTypes{type, type});
}

struct RoundTo {
  static constexpr bool kFloatingOnly = true;
  double scale;  // a power of ten
  bool divide;   // digits before the point
  template <typename C>
  C operator()(C x) const {
    const C s = static_cast<C>(scale);
    return divide ? std::nearbyint(x / s) * s : std::nearbyint(x * s) / s;
  }
};

Status round_decimals(KernelContext& context) {
  const Operand a = tensor_operand(context, 0);
  const int64_t decimals = context.integer(1);
  Tensor* out = elementwise_output(context, 2);
  if (!context.ok()) return context.status();
  const ScalarType type = a.tensor->type();
  if (!is_floating(type)) {
    return context.fail(Code::kUnsupported, "rounds floating tensors to decimals; got %s",
                        a.tensor->describe().c_str());
  }
  const RoundTo op{std::pow(10.0, std::abs(static_cast<double>(decimals))), decimals < 0};
  return run_elementwise<RoundTo, 1>(context, {a}, out, op, ElementwiseTypes{type, type});
}

struct Logit {
  static constexpr bool kFloatingOnly = true;
  static constexpr bool kInDouble = true;
  double low, high;  // NaN: not clamped
  template <typename C>
  C operator()(C x) const {
    if (x < static_cast<C>(low)) x = static_cast<C>(low);
    if (x > static_cast<C>(high)) x = static_cast<C>(high);
    return math::log(x / (C(1) - x));
  }
};

Status logit(KernelContext& context) {
  const Operand a = tensor_operand(context, 0);
  const std::optional<double> eps = context.optional_number(1);
  Tensor* out = elementwise_output(context, 2);
  const Logit op{eps ? *eps : std::nan(""), eps ? 1 - *eps : std::nan("")};
  return run_elementwise<Logit, 1>(context, {a}, out, op, ResultRule::kFloating);
}

constexpr KernelEntry kKernels[] = {
    {"aten::abs.out", 2, unary<Abs>},
    {"aten::acos.out", 2, unary<Acos>},
    {"aten::acosh.out", 2, unary<Acosh>},
    {"aten::asin.out", 2, unary<Asin>},
    {"aten::asinh.out", 2, unary<Asinh>},
    {"aten::atan.out", 2, unary<Atan>},
    {"aten::atanh.out", 2, unary<Atanh>},
    {"aten::bitwise_not.out", 2, bitwise_not},
    {"aten::ceil.out", 2, rounding<Ceil>},
    {"aten::cos.out", 2, unary<Cos>},
    {"aten::cosh.out", 2, unary<Cosh>},
    {"aten::erf.out", 2, unary<Erf>},
    {"aten::erfc.out", 2, unary<Erfc>},
    {"aten::exp.out", 2, unary<Exp>},
    {"aten::exp2.out", 2, unary<Exp2>},
    {"aten::expm1.out", 2, unary<Expm1>},
    {"aten::floor.out", 2, rounding<Floor>},
    {"aten::isinf.out", 2, test<IsInf>},
    {"aten::isnan.out", 2, test<IsNan>},
    {"aten::lgamma.out", 2, unary<Lgamma>},
    {"aten::log.out", 2, unary<Log>},
    {"aten::log10.out", 2, unary<Log10>},
    {"aten::log1p.out", 2, unary<Log1p>},
    {"aten::log2.out", 2, unary<Log2>},
    {"aten::logical_not.out", 2, unary<LogicalNot>},
    {"aten::logit.out", 3, logit},
    {"aten::neg.out", 2, unary<Neg>},
    {"aten::reciprocal.out", 2, unary<Reciprocal>},
    {"aten::round.out", 2, rounding<Round>},
    {"aten::round.decimals_out", 3, round_decimals},
    {"aten::rsqrt.out", 2, unary<Rsqrt>},
    {"aten::sigmoid.out", 2, unary<Sigmoid>},
    {"aten::sign.out", 2, unary<Sign>},
    {"aten::sin.out", 2, unary<Sin>},
    {"aten::sinh.out", 2, unary<Sinh>},
    {"aten::sqrt.out", 2, unary<Sqrt>},
    {"aten::tan.out", 2, unary<Tan>},
    {"aten::tanh.out", 2, unary<Tanh>},
    {"aten::trunc.out", 2, rounding<Trunc>},
};
const KernelTable table(HWY_TARGET, kSelected<kKernels>);

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace edgewise
