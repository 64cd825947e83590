// Arithmetic of two operands: add, sub, mul, div, pow, remainders, minimum and maximum.
#include <cmath>
#include <limits>
#include <string_view>
#include <type_traits>

#include "elementwise.h"
#include "vector_math.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

constexpr const char* kZeroDivision =
    "an integer is not divided by zero; got a zero in the divisor; try a floating type";

// A scalar factor in both kinds of compute type.
struct Factor {
  // Rounded to the type of the operands.
  Factor(const Scalar& scalar, ScalarType type)
      : d(scalar_to<double>(scalar)), i(scalar_to<int64_t>(scalar)) {
    if (is_half(type)) {
      std::byte bytes[2];
      store<double>(type, &d, 1, bytes, 1);
      d = load_one<double>(type, bytes);
    }
  }
  template <typename C>
  C get() const {
    if constexpr (std::is_integral_v<C>)
      return static_cast<C>(i);
    else
      return static_cast<C>(d);
  }
  double d;
  int64_t i;
};

struct AddScaled {
  static constexpr bool kRoundsNumbers = true;
  static constexpr bool kNarrow = true;
  static constexpr bool kSignless = true;
  Factor alpha;
  template <typename C>
  C operator()(C a, C b) const {
    return wrap_add(a, wrap_mul(alpha.get<C>(), b));
  }
};
struct SubScaled {
  static constexpr bool kRoundsNumbers = true;
  static constexpr bool kNarrow = true;
  static constexpr bool kSignless = true;
  Factor alpha;
  template <typename C>
  C operator()(C a, C b) const {
    return wrap_sub(a, wrap_mul(alpha.get<C>(), b));
  }
};
struct ReverseSubScaled {
  static constexpr bool kRoundsNumbers = true;
  static constexpr bool kNarrow = true;
  static constexpr bool kSignless = true;
  Factor alpha;
  template <typename C>
  C operator()(C a, C b) const {
    return wrap_sub(b, wrap_mul(alpha.get<C>(), a));
  }
};
struct Mul {
  static constexpr bool kNarrow = true;
  static constexpr bool kSignless = true;
  static constexpr ResultRule kRule = ResultRule::kPromoted;
  template <typename C>
  C operator()(C a, C b) const {
    return wrap_mul(a, b);
  }
};
struct TrueDiv {
  static constexpr ResultRule kRule = ResultRule::kFloating;
  static constexpr bool kFloatingOnly = true;
  template <typename C>
  C operator()(C a, C b) const {
    return a / b;
  }
};

// The integer cases that C++ leaves undefined: a zero divisor, and INT64_MIN / -1.
template <typename C>
C int_quotient(C a, C b, const char*& failure) {
  if (b == 0) {
    failure = kZeroDivision;
    return 0;
  }
  return b == -1 ? wrap_sub<C>(0, a) : a / b;
}
template <typename C>
C int_remainder(C a, C b, const char*& failure) {
  if (b == 0) {
    failure = kZeroDivision;
    return 0;
  }
  return b == -1 ? 0 : a % b;
}

// Integers of 32 bits are divided as doubles, in vectors: no quotient of two of them rounds to a
// whole number that it is not. `b` is not zero.
inline int32_t whole_quotient(int32_t a, int32_t b) {
  return b == -1 ? wrap_sub(int32_t{0}, a)
                 : static_cast<int32_t>(static_cast<double>(a) / static_cast<double>(b));
}
inline int32_t rest_of_division(int32_t a, int32_t b) {
  return wrap_sub(a, wrap_mul(whole_quotient(a, b), b));
}

// Remainders of floats are exact in double; those of doubles by a fused product.
template <typename C>
C float_remainder(C a, C b) {
  if constexpr (std::is_same_v<C, float>)
    return static_cast<float>(math::fmod(a, b));
  else
    return math::exact_fmod(a, b);
}
// What is left to the exact functions; of integers, what is no division.
template <typename C>
bool needs_slow_remainder(C a, C b) {
  if constexpr (std::is_same_v<C, float>)
    return math::needs_slow_fmod(a, b);
  else if constexpr (std::is_same_v<C, double>)
    return math::needs_slow_exact_fmod(a, b);
  else
    return b == 0;
}

struct FloorDiv {
  static constexpr ResultRule kRule = ResultRule::kPromoted;
  static constexpr bool kShort = true;
  const char* failure = nullptr;
  template <typename C>
  C operator()(C a, C b) {
    if constexpr (std::is_same_v<C, int32_t>) {
      const C quotient = whole_quotient(a, b), rest = wrap_sub(a, wrap_mul(quotient, b));
      return quotient - ((rest != 0) & ((rest < 0) != (b < 0)));
    } else if constexpr (std::is_integral_v<C>) {
      const C quotient = int_quotient(a, b, failure);
      const bool inexact = b != 0 && b != -1 && a % b != 0;
      return quotient - (inexact && ((a < 0) != (b < 0)));
    } else if constexpr (std::is_same_v<C, float>) {
      // Quotients of floats that double rounds to a whole number are whole.
      return static_cast<float>(std::floor(static_cast<double>(a) / static_cast<double>(b)));
    } else {
      return floor_with(a, b, math::exact_fmod(a, b));
    }
  }
  template <typename C>
  bool needs_slow_path(C a, C b) const {
    return needs_slow_remainder(a, b);
  }
  template <typename C>
  C slow_path(C a, C b) {
    if constexpr (std::is_floating_point_v<C>) {
      return b == 0 ? a / b : floor_with(a, b, std::fmod(a, b));
    } else {
      return int_quotient(a, b, failure);
    }
  }
  // As Python: exact where rounding of a / b would cross an integer.
  template <typename C>
  static C floor_with(C a, C b, C rest) {
    C quotient = (a - rest) / b;
    quotient = rest != 0 && ((b < 0) != (rest < 0)) ? quotient - 1 : quotient;
    const C floored = std::floor(quotient);
    const C nearest = quotient - floored > C(0.5) ? floored + 1 : floored;
    return quotient == 0 ? std::copysign(C(0), a / b) : nearest;
  }
};
struct TruncDiv {
  static constexpr bool kShort = true;
  const char* failure = nullptr;
  template <typename C>
  C operator()(C a, C b) {
    if constexpr (std::is_same_v<C, int32_t>)
      return whole_quotient(a, b);
    else if constexpr (std::is_integral_v<C>)
      return int_quotient(a, b, failure);
    else
      return std::trunc(a / b);
  }
  template <typename C>
  bool needs_slow_path(C, C b) const {
    return std::is_integral_v<C> && b == 0;
  }
  template <typename C>
  C slow_path(C a, C b) {
    if constexpr (std::is_integral_v<C>)
      return int_quotient(a, b, failure);
    else
      return std::trunc(a / b);
  }
};
struct Remainder {  // sign of the divisor
  static constexpr bool kRoundsNumbers = true;
  static constexpr ResultRule kRule = ResultRule::kPromoted;
  static constexpr bool kShort = true;
  const char* failure = nullptr;
  template <typename C>
  C operator()(C a, C b) {
    C rest;
    if constexpr (std::is_same_v<C, int32_t>)
      rest = rest_of_division(a, b);
    else if constexpr (std::is_integral_v<C>)
      rest = int_remainder(a, b, failure);
    else
      rest = float_remainder(a, b);
    return with_sign_of_divisor(rest, b);
  }
  template <typename C>
  bool needs_slow_path(C a, C b) const {
    return needs_slow_remainder(a, b);
  }
  template <typename C>
  C slow_path(C a, C b) {
    if constexpr (std::is_integral_v<C>)
      return int_remainder(a, b, failure);
    else
      return with_sign_of_divisor(std::fmod(a, b), b);
  }
  template <typename C>
  static C with_sign_of_divisor(C rest, C b) {
    return rest != 0 && ((rest < 0) != (b < 0)) ? wrap_add(rest, b) : rest;
  }
};
struct Fmod {  // sign of the dividend
  static constexpr bool kRoundsNumbers = true;
  static constexpr ResultRule kRule = ResultRule::kPromoted;
  static constexpr bool kShort = true;
  const char* failure = nullptr;
  template <typename C>
  C operator()(C a, C b) {
    if constexpr (std::is_same_v<C, int32_t>)
      return rest_of_division(a, b);
    else if constexpr (std::is_integral_v<C>)
      return int_remainder(a, b, failure);
    else
      return float_remainder(a, b);
  }
  template <typename C>
  bool needs_slow_path(C a, C b) const {
    return needs_slow_remainder(a, b);
  }
  template <typename C>
  C slow_path(C a, C b) {
    if constexpr (std::is_integral_v<C>)
      return int_remainder(a, b, failure);
    else
      return std::fmod(a, b);
  }
};
struct Maximum {  // NaN wins
  static constexpr bool kNarrow = true;
  static constexpr ResultRule kRule = ResultRule::kPromoted;
  template <typename C>
  C operator()(C a, C b) const {
    return a > b || a != a ? a : b;
  }
};
struct Minimum {
  static constexpr bool kNarrow = true;
  static constexpr ResultRule kRule = ResultRule::kPromoted;
  template <typename C>
  C operator()(C a, C b) const {
    return a < b || a != a ? a : b;
  }
};
struct Fmax {  // NaN loses; of zeros the first is taken, as in eager float32
  static constexpr bool kNarrow = true;
  static constexpr ResultRule kRule = ResultRule::kPromoted;
  template <typename C>
  C operator()(C a, C b) const {
    return a >= b || b != b ? a : b;
  }
};
struct Fmin {
  static constexpr bool kNarrow = true;
  static constexpr ResultRule kRule = ResultRule::kPromoted;
  template <typename C>
  C operator()(C a, C b) const {
    return a <= b || b != b ? a : b;
  }
};
struct Atan2 {
  static constexpr bool kRoundsNumbers = true;
  static constexpr ResultRule kRule = ResultRule::kFloating;
  static constexpr size_t kWide = sizeof(double);
  static constexpr bool kFloatingOnly = true;
  static constexpr bool kInDouble = true;
  template <typename C>
  C operator()(C a, C b) const {
    return math::atan2(a, b);
  }
  template <typename C>
  bool needs_slow_path(C a, C b) const {
    return math::needs_slow_atan2(a, b);
  }
  template <typename C>
  C slow_path(C a, C b) const {
    return std::atan2(a, b);
  }
};
struct Pow {
  static constexpr bool kRoundsNumbers = true;
  static constexpr ResultRule kRule = ResultRule::kPromoted;
  static constexpr size_t kWide = sizeof(float);
  template <typename C>
  C operator()(C a, C b) const {
    if constexpr (std::is_integral_v<C>) {
      if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
      C result = 1;
      for (; b > 0; b >>= 1) {
        if (b & 1) result = wrap_mul(result, a);
        a = wrap_mul(a, a);
      }
      return result;
    } else if constexpr (std::is_same_v<C, float>) {
      return static_cast<float>(math::power(a, b));
    } else {
      return std::pow(a, b);
    }
  }
  template <typename C>
  bool needs_slow_path(C a, C b) const {
    return std::is_same_v<C, float> && math::needs_slow_power(a, b);
  }
  template <typename C>
  C slow_path(C a, C b) const {
    return std::pow(a, b);
  }
};
// Powers that need no logarithm.
template <int kExponent>
struct WholePower {
  static constexpr bool kNarrow = true;
  static constexpr bool kSignless = true;
  template <typename C>
  C operator()(C a) const {
    return kExponent == 2 ? wrap_mul(a, a) : wrap_mul<C>(wrap_mul(a, a), a);
  }
};
// Eager PyTorch takes roots of all but float16, which differ from powers at -0 and -infinity.
struct Root {
  static constexpr bool kFloatingOnly = true;
  template <typename C>
  C operator()(C a) const {
    return std::sqrt(a);
  }
};
struct InverseRoot {
  static constexpr bool kFloatingOnly = true;
  template <typename C>
  C operator()(C a) const {
    return C(1) / std::sqrt(a);
  }
};

// exp2 is lowered to a power of 2, for other runtimes.
struct PowerOfTwo {
  static constexpr bool kFloatingOnly = true;
  static constexpr size_t kWide = sizeof(double);
  template <typename C>
  C operator()(C exponent) const {
    return math::exp2(exponent);
  }
};

template <typename Op, bool kScalar>
Status scaled(KernelContext& context) {
  const Operand a = tensor_operand(context, 0);
  const Operand b = kScalar ? scalar_operand(context, 1) : tensor_operand(context, 1);
  const Scalar alpha = context.scalar(2);
  Tensor* out = elementwise_output(context, 3);
  if (!context.ok()) return context.status();
  const std::array<Operand, 2> operands{a, b};
  const ElementwiseTypes types = elementwise_types(operands, ResultRule::kPromoted);
  if (alpha.kind == Scalar::Kind::kDouble && !is_floating(types.common)) {
    return context.fail(Code::kInvalidArgument, "alpha of integer operands is an integer; got %g",
                        alpha.d);
  }
  if (types.common == ScalarType::kBool && !std::is_same_v<Op, AddScaled>) {
    return context.fail(Code::kInvalidArgument,
                        "subtraction takes numbers; got bool; try logical_xor");
  }
  return run_elementwise<Op, 2>(context, operands, out, Op{Factor(alpha, types.common)}, types);
}

template <bool kScalar>
Status div_mode(KernelContext& context) {
  const Operand a = tensor_operand(context, 0);
  const Operand b = kScalar ? scalar_operand(context, 1) : tensor_operand(context, 1);
  const Value* mode = context.value(2);
  Tensor* out = elementwise_output(context, 3);
  if (!context.ok()) return context.status();
  const std::array<Operand, 2> operands{a, b};
  if (mode->is_none()) {
    return run_elementwise<TrueDiv, 2>(context, operands, out, TrueDiv(), TrueDiv::kRule);
  }
  const std::string_view name = context.string(2);
  if (!context.ok()) return context.status();
  if (name == "floor") {
    return run_elementwise<FloorDiv, 2>(context, operands, out, FloorDiv(), ResultRule::kPromoted);
  }
  if (name == "trunc") {
    return run_elementwise<TruncDiv, 2>(context, operands, out, TruncDiv(), ResultRule::kPromoted);
  }
  return context.fail(Code::kInvalidArgument,
                      "rounding_mode is None, \"floor\" or \"trunc\"; got \"%.*s\"",
                      static_cast<int>(name.size()), name.data());
}

Status pow_tensor_scalar(KernelContext& context) {
  const Operand a = tensor_operand(context, 0), exponent = scalar_operand(context, 1);
  Tensor* out = elementwise_output(context, 2);
  if (!context.ok()) return context.status();
  const ElementwiseTypes types = elementwise_types(std::array{a, exponent}, ResultRule::kPromoted);
  const double power = scalar_to<double>(exponent.number);
  if (power == 2) return run_elementwise(context, std::array{a}, out, WholePower<2>(), types);
  if (power == 3) return run_elementwise(context, std::array{a}, out, WholePower<3>(), types);
  if (is_floating(types.common) && types.common != ScalarType::kHalf) {
    if (power == 0.5) return run_elementwise(context, std::array{a}, out, Root(), types);
    if (power == -0.5) return run_elementwise(context, std::array{a}, out, InverseRoot(), types);
  }
  return run_elementwise<Pow, 2>(context, {a, exponent}, out, Pow(), types);
}

Status pow_scalar_tensor(KernelContext& context) {
  const Operand a = scalar_operand(context, 0), b = tensor_operand(context, 1);
  Tensor* out = elementwise_output(context, 2);
  if (!context.ok()) return context.status();
  const ElementwiseTypes types = elementwise_types(std::array{a, b}, ResultRule::kPromoted);
  if (is_floating(types.common) && scalar_to<double>(a.number) == 2) {
    return run_elementwise(context, std::array{b}, out, PowerOfTwo(), types);
  }
  return run_elementwise<Pow, 2>(context, {a, b}, out, Pow(), types);
}

constexpr KernelEntry kKernels[] = {
    {"aten::add.out", 4, scaled<AddScaled, false>},
    {"aten::add.Scalar_out", 4, scaled<AddScaled, true>},
    {"aten::sub.out", 4, scaled<SubScaled, false>},
    {"aten::sub.Scalar_out", 4, scaled<SubScaled, true>},
    {"aten::rsub.Scalar_out", 4, scaled<ReverseSubScaled, true>},
    {"aten::mul.out", 3, binary<Mul>},
    {"aten::mul.Scalar_out", 3, binary_with_scalar<Mul>},
    {"aten::div.out", 3, binary<TrueDiv>},
    {"aten::div.Scalar_out", 3, binary_with_scalar<TrueDiv>},
    {"aten::div.out_mode", 4, div_mode<false>},
    {"aten::div.Scalar_mode_out", 4, div_mode<true>},
    {"aten::floor_divide.out", 3, binary<FloorDiv>},
    {"aten::remainder.Tensor_out", 3, binary<Remainder>},
    {"aten::remainder.Scalar_out", 3, binary_with_scalar<Remainder>},
    {"aten::fmod.Tensor_out", 3, binary<Fmod>},
    {"aten::fmod.Scalar_out", 3, binary_with_scalar<Fmod>},
    {"aten::maximum.out", 3, binary<Maximum>},
    {"aten::minimum.out", 3, binary<Minimum>},
    {"aten::fmax.out", 3, binary<Fmax>},
    {"aten::fmin.out", 3, binary<Fmin>},
    {"aten::atan2.out", 3, binary<Atan2>},
    {"aten::pow.Tensor_Tensor_out", 3, binary<Pow>},
    {"aten::pow.Tensor_Scalar_out", 3, pow_tensor_scalar},
    {"aten::pow.Scalar_out", 3, pow_scalar_tensor},
};
const KernelTable table(HWY_TARGET, kSelected<kKernels>);

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace edgewise
