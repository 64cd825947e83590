// Comparisons, logic and bits of two operands; where, masked_fill.
#include "elementwise.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

struct Test {
  static constexpr ResultRule kRule = ResultRule::kBool;
  static constexpr bool kNarrow = true;
};
struct SignlessTest : Test {
  static constexpr bool kSignless = true;
};
struct Order : Test {
  static constexpr bool kRoundsNumbers = true;
};
struct Equality : SignlessTest {
  static constexpr bool kRoundsNumbers = true;
};
#define EDGEWISE_COMPARISON(Name, Kind, expression) \
  struct Name : Kind {                              \
    template <typename C>                           \
    bool operator()(C a, C b) const {               \
      return expression;                            \
    }                                               \
  };
EDGEWISE_COMPARISON(Eq, Equality, a == b)
EDGEWISE_COMPARISON(Ne, Equality, a != b)
EDGEWISE_COMPARISON(Lt, Order, a < b)
EDGEWISE_COMPARISON(Le, Order, a <= b)
EDGEWISE_COMPARISON(Gt, Order, a > b)
EDGEWISE_COMPARISON(Ge, Order, a >= b)
EDGEWISE_COMPARISON(LogicalAnd, SignlessTest, (a != 0) & (b != 0))
EDGEWISE_COMPARISON(LogicalOr, SignlessTest, (a != 0) | (b != 0))
EDGEWISE_COMPARISON(LogicalXor, SignlessTest, (a != 0) != (b != 0))
#undef EDGEWISE_COMPARISON

#define EDGEWISE_BITWISE(Name, expression)      \
  struct Name {                                 \
    static constexpr bool kIntegralOnly = true; \
    static constexpr bool kNarrow = true;       \
    static constexpr bool kSignless = true;     \
    template <typename C>                       \
    C operator()(C a, C b) const {              \
      return static_cast<C>(expression);        \
    }                                           \
  };
EDGEWISE_BITWISE(BitAnd, a& b)
EDGEWISE_BITWISE(BitOr, a | b)
EDGEWISE_BITWISE(BitXor, a ^ b)
#undef EDGEWISE_BITWISE
// A shift by the width or more, or by a negative number, shifts everything out.
struct ShiftLeft {
  static constexpr bool kIntegralOnly = true;
  static constexpr bool kNarrow = true;
  template <typename C>
  C operator()(C a, C b) const {
    constexpr C kWidth = sizeof(C) * 8;
    using Bits = std::conditional_t<sizeof(C) == 8, uint64_t, uint32_t>;
    const bool within = b >= 0 && b < kWidth;
    const Bits shifted = static_cast<Bits>(a) << static_cast<Bits>(within ? b : C(0));
    return within ? static_cast<C>(shifted) : C(0);
  }
};
struct ShiftRight {
  static constexpr bool kIntegralOnly = true;
  static constexpr bool kNarrow = true;
  template <typename C>
  C operator()(C a, C b) const {
    // As int, of whose upper bits all are the sign. Negative numbers are large ones.
    using Wider = std::conditional_t<sizeof(C) == 8, int64_t, int32_t>;
    using Count = std::make_unsigned_t<Wider>;
    constexpr Count kMost = sizeof(Wider) * 8 - 1;
    const Count by = static_cast<std::make_unsigned_t<C>>(b);
    return static_cast<C>(static_cast<Wider>(a) >> (by < kMost ? by : kMost));
  }
};

template <typename Op, bool kScalar>
Status bitwise(KernelContext& context) {
  const Operand a = tensor_operand(context, 0);
  const Operand b = kScalar ? scalar_operand(context, 1) : tensor_operand(context, 1);
  Tensor* out = elementwise_output(context, 2);
  if (!context.ok()) return context.status();
  const std::array<Operand, 2> operands{a, b};
  const ElementwiseTypes types = elementwise_types(operands, ResultRule::kPromoted);
  if (!is_integral(types.common)) {
    return context.fail(Code::kInvalidArgument, "bits are those of integers or bools; got %s",
                        a.tensor->describe().c_str());
  }
  return run_elementwise<Op, 2>(context, operands, out, Op(), types);
}

// Elements are chosen as units of their size, whatever their type.
template <typename Unit>
void choose(void*, const void* const* in, void* out, int64_t count) {
  count &= ~(kLoopStep - 1);
  const auto* mask = static_cast<const uint8_t*>(in[0]);
  const auto *a = static_cast<const Unit*>(in[1]), *b = static_cast<const Unit*>(in[2]);
  auto* result = static_cast<Unit*>(out);
  EDGEWISE_INDEPENDENT
  for (int64_t i = 0; i < count; ++i) {
    const Unit yes = a[i], no = b[i];
    result[i] = mask[i] != 0 ? yes : no;
  }
}

BlockLoop choice_of(ScalarType type) {
  switch (element_size(type)) {
    case 1:
      return choose<uint8_t>;
    case 2:
      return choose<uint16_t>;
    case 4:
      return choose<uint32_t>;
    default:
      return choose<uint64_t>;
  }
}

constexpr Operation kWhere{nullptr, choice_of, nullptr, false, true};

Status check_mask(KernelContext& context, const Tensor* mask) {
  if (mask->type() == ScalarType::kBool || mask->type() == ScalarType::kByte) return {};
  return context.fail(Code::kInvalidArgument, "a mask is bool; got %s", mask->describe().c_str());
}

Status where_self(KernelContext& context) {
  const Operand condition = tensor_operand(context, 0);
  const Operand a = tensor_operand(context, 1), b = tensor_operand(context, 2);
  Tensor* out = elementwise_output(context, 3);
  if (!context.ok()) return context.status();
  EDGEWISE_RETURN_IF_ERROR(check_mask(context, condition.tensor));
  return run_operation(context, std::array{condition, a, b}, out, kWhere,
                       elementwise_types(std::array{a, b}, ResultRule::kPromoted));
}

// The result has the type of self, whatever the value's.
template <bool kScalar>
Status masked_fill(KernelContext& context) {
  const Operand self = tensor_operand(context, 0), mask = tensor_operand(context, 1);
  const Operand value = kScalar ? scalar_operand(context, 2) : tensor_operand(context, 2);
  Tensor* out = elementwise_output(context, 3);
  if (!context.ok()) return context.status();
  EDGEWISE_RETURN_IF_ERROR(check_mask(context, mask.tensor));
  if (!kScalar && value.tensor->rank() != 0) {
    return context.fail(Code::kInvalidArgument, "the value has no dimensions; got %s",
                        value.tensor->describe().c_str());
  }
  const ScalarType type = self.tensor->type();
  return run_operation(context, std::array{mask, value, self}, out, kWhere,
                       ElementwiseTypes{type, type});
}

constexpr KernelEntry kKernels[] = {
    {"aten::eq.Tensor_out", 3, binary<Eq>},
    {"aten::eq.Scalar_out", 3, binary_with_scalar<Eq>},
    {"aten::ne.Tensor_out", 3, binary<Ne>},
    {"aten::ne.Scalar_out", 3, binary_with_scalar<Ne>},
    {"aten::lt.Tensor_out", 3, binary<Lt>},
    {"aten::lt.Scalar_out", 3, binary_with_scalar<Lt>},
    {"aten::le.Tensor_out", 3, binary<Le>},
    {"aten::le.Scalar_out", 3, binary_with_scalar<Le>},
    {"aten::gt.Tensor_out", 3, binary<Gt>},
    {"aten::gt.Scalar_out", 3, binary_with_scalar<Gt>},
    {"aten::ge.Tensor_out", 3, binary<Ge>},
    {"aten::ge.Scalar_out", 3, binary_with_scalar<Ge>},
    {"aten::logical_and.out", 3, binary<LogicalAnd>},
    {"aten::logical_or.out", 3, binary<LogicalOr>},
    {"aten::logical_xor.out", 3, binary<LogicalXor>},
    {"aten::bitwise_and.Tensor_out", 3, bitwise<BitAnd, false>},
    {"aten::bitwise_and.Scalar_out", 3, bitwise<BitAnd, true>},
    {"aten::bitwise_or.Tensor_out", 3, bitwise<BitOr, false>},
    {"aten::bitwise_or.Scalar_out", 3, bitwise<BitOr, true>},
    {"aten::bitwise_xor.Tensor_out", 3, bitwise<BitXor, false>},
    {"aten::bitwise_xor.Scalar_out", 3, bitwise<BitXor, true>},
    {"aten::bitwise_left_shift.Tensor_out", 3, bitwise<ShiftLeft, false>},
    {"aten::bitwise_left_shift.Tensor_Scalar_out", 3, bitwise<ShiftLeft, true>},
    {"aten::bitwise_right_shift.Tensor_out", 3, bitwise<ShiftRight, false>},
    {"aten::bitwise_right_shift.Tensor_Scalar_out", 3, bitwise<ShiftRight, true>},
    {"aten::where.self_out", 4, where_self},
    {"aten::masked_fill.Scalar_out", 4, masked_fill<true>},
    {"aten::masked_fill.Tensor_out", 4, masked_fill<false>},
};
const KernelTable table(HWY_TARGET, kSelected<kKernels>);

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace edgewise
