// Elementwise kernels: operands are tensors or scalars, broadcast, promoted as PyTorch
// does, read a block at a time as one type, and given to an operation's loop over arrays.
//
// An operation is a struct with `template <typename C> C operator()(C a, ...)`, or with a
// result of bool if its rule is kBool. Only its loops are compiled for each operation and type;
// the walk over operands is the same code for all. If an operation can fail it has a member
// `const char* failure = nullptr` and sets it. If it is made for vectors of ordinary floating
// operands, or of int32, `needs_slow_path(a, ...)` tells the others, which go to
// `slow_path(a, ...)`.
#pragma once

#include <array>
#include <utility>

#include "kernel_status.h"
#include "view.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {

// Type of the result and of the computation, from the promoted type.
enum class ResultRule : uint8_t {
  kPromoted,  // both promoted
  kFloating,  // both promoted, integers become float32
  kBool,      // computed in the promoted type; the result is bool
};

// An argument that is a tensor or a number.
struct Operand {
  const Tensor* tensor = nullptr;
  Scalar number;
};

inline Operand tensor_operand(KernelContext& context, size_t index) {
  return {context.tensor(index), {}};
}
inline Operand scalar_operand(KernelContext& context, size_t index) {
  return {nullptr, context.scalar(index)};
}

// The output may be an operand that has its shape: element i is only read for element i.
inline Tensor* elementwise_output(KernelContext& context, size_t index) {
  return context.out(index);
}

// A loop over arrays: of operands, all of one type, and of results of that type, or of bytes
// that are 0 or 1. `count` is a multiple of kLoopStep, so that vectors leave no rest.
using BlockLoop = void (*)(void* operation, const void* const* in, void* out, int64_t count);
inline constexpr int64_t kLoopStep = 32;

// What is known of an operation when it runs.
struct Operation {
  void* self = nullptr;
  BlockLoop (*loop)(ScalarType) = nullptr;  // for operands read as that type; null: none
  const char* const* failure = nullptr;
  bool to_bool = false;    // loops give bytes
  bool condition = false;  // the first operand is a mask, read as bytes
  bool rounds_numbers = false;
};
inline constexpr size_t kMostOperands = 3;

// What an operation may say of itself.
template <typename Op>
concept FloatingOnly = requires {
  Op::kFloatingOnly;
};
template <typename Op>
concept IntegralOnly = requires {
  Op::kIntegralOnly;
};
// Computed in double whatever the operands' type.
template <typename Op>
concept InDouble = requires {
  Op::kInDouble;
};
// Integers may be computed in the operands' own type, which takes less room in a vector than
// int64; if also signless, int8 as uint8.
template <typename Op>
concept Narrow = requires {
  Op::kNarrow;
};
// Or in int32, whatever their type below it.
template <typename Op>
concept Short = requires {
  Op::kShort;
};
// Takes many instructions, which the widest vectors make fewer, for floating elements of up to
// kWide bytes.
template <typename Op, typename T>
concept Wide = std::is_floating_point_v<T> && requires {
  requires sizeof(T) <= Op::kWide;
};
template <typename Op>
concept Signless = requires {
  Op::kSignless;
};
// Of float16 and bfloat16 also as uint16_t, by `bits(x)`.
template <typename Op>
concept OnBits = requires(const Op op, uint16_t x) {
  op.bits(x);
};
// Beside float16 and bfloat16, numbers and tensors without dimensions are rounded to that type
// first, as eager PyTorch does on CPUs; of other operations the result alone is rounded.
template <typename Op>
concept RoundsNumbers = requires {
  Op::kRoundsNumbers;
};
template <typename Op>
concept Fails = requires(Op op) {
  op.failure;
};
template <typename Op>
concept HasSlowPath = requires {
  &Op::template needs_slow_path<double>;
};
template <typename Op>
constexpr bool kIsTest = [] {
  if constexpr (requires { Op::kRule; }) {
    return Op::kRule == ResultRule::kBool;
  } else {
    return false;
  }
}();

#if defined(__OPTIMIZE_SIZE__)
#define EDGEWISE_FLATTEN
#else
#define EDGEWISE_FLATTEN [[gnu::flatten]]
#endif

template <typename Op, typename T, typename Indices>
struct BlockOf;

template <typename Op, typename T, size_t... K>
struct BlockOf<Op, T, std::index_sequence<K...>> {
  using R = std::conditional_t<kIsTest<Op>, uint8_t, T>;

  static void run(void* self, const void* const* in, void* out, int64_t count) {
    count &= ~(kLoopStep - 1);
    R* result = static_cast<R*>(out);
    // A copy, unless it records failures: stores of results could not change its parameters.
    Op& held = *static_cast<Op*>(self);
    std::conditional_t<Fails<Op>, Op&, const Op> use = held;
    const std::array<const T*, sizeof...(K)> x{static_cast<const T*>(in[K])...};
    if constexpr (HasSlowPath<Op> && (std::is_floating_point_v<T> || std::is_same_v<T, int32_t>)) {
      constexpr int64_t kPart = 512;
      for (int64_t start = 0; start < count; start += kPart) {
        const int64_t end = std::min(count, start + kPart);
        int32_t slow = 0;
        for (int64_t i = start; i < end; ++i) slow |= held.needs_slow_path(x[K][i]...) ? 1 : 0;
        if (slow != 0) {
          for (int64_t i = start; i < end; ++i) {
            result[i] =
                held.needs_slow_path(x[K][i]...) ? held.slow_path(x[K][i]...) : use(x[K][i]...);
          }
        } else {
          apply(use, {x[K] + start...}, result + start, (end - start) & ~(kLoopStep - 1));
        }
      }
    } else {
      apply(use, x, result, count);
    }
  }

 private:
  template <typename Use>
  static void apply(Use& use, const std::array<const T*, sizeof...(K)>& x, R* result,
                    int64_t count) {
#if EDGEWISE_HAS_AVX2
    if constexpr (Wide<Op, T>) {
      if (has_wide()) return apply_wide(use, x, result, count);
    }
#endif
    apply_here(use, x, result, count);
  }
#if EDGEWISE_HAS_AVX2
  template <typename Use>
  [[EDGEWISE_WIDE, gnu::flatten]] static void apply_wide(
      Use& use, const std::array<const T*, sizeof...(K)>& x, R* result, int64_t count) {
    EDGEWISE_INDEPENDENT
    for (int64_t i = 0; i < count; ++i) result[i] = static_cast<R>(use(x[K][i]...));
  }
#endif

  // With large operations inside, too: a call would keep the loop from becoming vectors.
  template <typename Use>
  EDGEWISE_FLATTEN static void apply_here(Use& use, const std::array<const T*, sizeof...(K)>& x,
                                          R* result, int64_t count) {
    // The result may be an operand, but element i is only read for element i.
    EDGEWISE_INDEPENDENT
    for (int64_t i = 0; i < count; ++i) result[i] = static_cast<R>(use(x[K][i]...));
  }
};

// A loop over the bits of 16-bit numbers.
template <typename Op>
void run_on_bits(void* self, const void* const* in, void* out, int64_t count) {
  count &= ~(kLoopStep - 1);
  const Op use = *static_cast<const Op*>(self);
  const auto* x = static_cast<const uint16_t*>(in[0]);
  auto* result = static_cast<uint16_t*>(out);
  EDGEWISE_INDEPENDENT
  for (int64_t i = 0; i < count; ++i) result[i] = use.bits(x[i]);
}

template <typename Op, size_t N>
BlockLoop loop_of(ScalarType type) {
  using Indices = std::make_index_sequence<N>;
  switch (type) {
    case ScalarType::kDouble:
      if constexpr (!IntegralOnly<Op>) return BlockOf<Op, double, Indices>::run;
      break;
    case ScalarType::kFloat:
      if constexpr (!IntegralOnly<Op> && !InDouble<Op>) return BlockOf<Op, float, Indices>::run;
      break;
    case ScalarType::kLong:
      if constexpr (!FloatingOnly<Op>) return BlockOf<Op, int64_t, Indices>::run;
      break;
    case ScalarType::kInt:
      if constexpr (Narrow<Op> || Short<Op>) return BlockOf<Op, int32_t, Indices>::run;
      break;
    case ScalarType::kShort:
      if constexpr (Narrow<Op>) return BlockOf<Op, int16_t, Indices>::run;
      break;
    case ScalarType::kChar:
      if constexpr (Narrow<Op> && !Signless<Op>) return BlockOf<Op, int8_t, Indices>::run;
      [[fallthrough]];
    case ScalarType::kByte:
    case ScalarType::kBool:
      if constexpr (Narrow<Op>) return BlockOf<Op, uint8_t, Indices>::run;
      break;
    case ScalarType::kHalf:
    case ScalarType::kBFloat16:
      if constexpr (OnBits<Op>) return run_on_bits<Op>;
      break;
    default:
      break;
  }
  return nullptr;
}

template <typename Op, size_t N>
Operation operation_of(Op& op) {
  Operation result{&op, loop_of<Op, N>, nullptr, kIsTest<Op>, false, RoundsNumbers<Op>};
  if constexpr (Fails<Op>) result.failure = &op.failure;
  return result;
}

// Type in which an operation computes, and type of its result.
struct ElementwiseTypes {
  ScalarType common;
  ScalarType result;
};

// The type that the operands promote to, with the rule applied.
ElementwiseTypes elementwise_types(std::span<const Operand> operands, ResultRule rule);

// Checks types, broadcasts, resizes `out` and computes.
Status run_operation(KernelContext& context, std::span<const Operand> operands, Tensor* out,
                     const Operation& operation, ElementwiseTypes types);
Status run_operation(KernelContext& context, std::span<const Operand> operands, Tensor* out,
                     const Operation& operation, ResultRule rule);

// The same for a struct. Given types let operations with rules of their own in.
template <typename Op, size_t N, typename Types>
Status run_elementwise(KernelContext& context, const std::array<Operand, N>& operands, Tensor* out,
                       Op op, Types types) {
  static_assert(N <= kMostOperands);
  return run_operation(context, operands, out, operation_of<Op, N>(op), types);
}

// Kernels of operations without parameters of their own, for registration tables.
Status run_unary(KernelContext& context, const Operation& operation, ResultRule rule);
Status run_binary(KernelContext& context, const Operation& operation, ResultRule rule,
                  bool with_scalar);

template <typename Op>
Status unary(KernelContext& context) {
  Op op;
  return run_unary(context, operation_of<Op, 1>(op), Op::kRule);
}

template <typename Op>
Status binary(KernelContext& context) {
  Op op;
  return run_binary(context, operation_of<Op, 2>(op), Op::kRule, false);
}

template <typename Op>
Status binary_with_scalar(KernelContext& context) {
  Op op;
  return run_binary(context, operation_of<Op, 2>(op), Op::kRule, true);
}

}  // namespace HWY_NAMESPACE
}  // namespace edgewise
