// Elementwise kernels: operands are tensors or scalars, broadcast, promoted as PyTorch
// does, converted a block at a time to one compute type, and given to an operation.
//
// An operation is a struct with `template <typename C> C operator()(C a, ...)`. If it can
// fail it has a member `const char* failure = nullptr` and sets it. If the operator is made
// for vectors of ordinary floating operands, `hard(a, ...)` tells the others, which go to
// `exact(a, ...)`.
#pragma once

#include <array>
#include <utility>

#include "kernel_status.h"
#include "view.h"

namespace edgewise {
inline namespace EDGEWISE_TARGET {

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

inline constexpr int64_t kElementwiseBlock = 512;

template <typename Op>
concept HasHard = requires {
  &Op::template hard<float>;
};

// Whether some of a block's elements are outside the operation's vector form.
template <typename C, typename Op, typename... In>
bool any_hard(const Op& op, int64_t n, const In*... in) {
  if constexpr (HasHard<Op> && !std::is_integral_v<C>) {
    int32_t any = 0;
    for (int64_t i = 0; i < n; ++i) any |= op.hard(in[i]...) ? 1 : 0;
    return any != 0;
  } else {
    return false;
  }
}

// Operations on integers that may be computed in the operands' own type, which takes less
// room in a vector than int64.
template <typename Op>
concept Narrow = requires {
  Op::kNarrow;
};

// Calls f(T, bool) for a narrow type: T as which elements are read, and whether it is bool,
// whose elements may be any byte.
template <typename F>
bool with_narrow_type(ScalarType type, F&& f) {
  switch (type) {
    case ScalarType::kByte:
      return f(uint8_t{}, std::false_type{});
    case ScalarType::kChar:
      return f(int8_t{}, std::false_type{});
    case ScalarType::kShort:
      return f(int16_t{}, std::false_type{});
    case ScalarType::kInt:
      return f(int32_t{}, std::false_type{});
    case ScalarType::kBool:
      return f(uint8_t{}, std::true_type{});
    default:
      return false;
  }
}

// Applies an operation to runs of elements of one narrow type T, `count` of them, of which
// each operand has a step of 0 or 1.
template <typename T, bool kBoolIn, bool kBoolOut, typename Op, size_t... K>
void apply_narrow(const Op& op, T* result, const std::array<const T*, sizeof...(K)>& in,
                  const std::array<int64_t, sizeof...(K)>& steps, int64_t count,
                  std::index_sequence<K...>) {
  alignas(64) T blocks[sizeof...(K)][kElementwiseBlock];
  const Op use = op;  // a copy: stores of bytes could change its parameters
  const auto read = [](T value) { return kBoolIn ? static_cast<T>(value != 0) : value; };
  for (size_t k = 0; k < sizeof...(K); ++k) {
    if (steps[k] == 0) std::fill_n(blocks[k], std::min(count, kElementwiseBlock), *in[k]);
  }
  for (int64_t start = 0; start < count; start += kElementwiseBlock) {
    const int64_t n = std::min(kElementwiseBlock, count - start);
    const std::array<const T*, sizeof...(K)> from{(steps[K] == 0 ? blocks[K] : in[K] + start)...};
    T* to = result + start;
    EDGEWISE_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) {
      const T value = static_cast<T>(use(read(from[K][i])...));
      to[i] = kBoolOut ? static_cast<T>(value != 0) : value;
    }
  }
}

// The same for views; false if they are not of one narrow type, in rows.
template <typename Op, size_t... K>
bool apply_narrow(const View& out, const std::array<View, sizeof...(K)>& inputs, const Op& op,
                  std::index_sequence<K...> places) {
  const ScalarType type = inputs[0].type;
  bool same = out.type == type || out.type == ScalarType::kBool;
  for (const View& input : inputs) same = same && input.type == type;
  if (!same) return false;
  const Loop<sizeof...(K) + 1> loop(out.sizes, {&out.strides, &inputs[K].strides...});
  bool rows = true;
  loop.run([&](const auto&, int64_t count, const auto& steps) {
    rows = rows && (count < 2 || steps[0] == 1) &&
           ((count < 2 || steps[K + 1] == 0 || steps[K + 1] == 1) && ...);
  });
  if (!rows) return false;
  return with_narrow_type(type, [&](auto t, auto is_bool) {
    using T = decltype(t);
    constexpr bool kBool = decltype(is_bool)::value;
    const auto run = [&]<bool kBoolOut, typename R>(std::bool_constant<kBoolOut>, R) {
      loop.run([&](const auto& offsets, int64_t count, const auto& steps) {
        if constexpr (sizeof(R) == sizeof(T)) {
          apply_narrow<T, kBool, kBoolOut>(
              op, reinterpret_cast<T*>(out.at(offsets[0])),
              {reinterpret_cast<const T*>(inputs[K].at(offsets[K + 1]))...}, {steps[K + 1]...},
              count, places);
        }
      });
      return true;
    };
    if (out.type != ScalarType::kBool) return run(std::false_type{}, T{});
    // A result of bool has one byte.
    if constexpr (sizeof(T) == 1) return run(std::true_type{}, T{});
    return false;
  });
}

template <typename C, typename Op, size_t... K>
void apply_blocks(const View& out, const std::array<View, sizeof...(K)>& inputs, Op& op,
                  std::index_sequence<K...> places) {
  if constexpr (Narrow<Op> && std::is_integral_v<C>) {
    if (apply_narrow(out, inputs, op, places)) return;
  }
  constexpr size_t N = sizeof...(K);
  const Loop<N + 1> loop(out.sizes, {&out.strides, &inputs[K].strides...});
  // A copy, unless it records failures: stores of results could not change its parameters.
  std::conditional_t < requires { op.failure; }
  , Op&, const Op > use = op;
  alignas(64) C blocks[N + 1][kElementwiseBlock];
  loop.run([&](const auto& offsets, int64_t count, const auto& steps) {
    for (int64_t start = 0; start < count; start += kElementwiseBlock) {
      const int64_t n = std::min(kElementwiseBlock, count - start);
      auto input = [&](size_t k) -> const C* {
        const std::byte* source = inputs[k].at(offsets[k + 1] + start * steps[k + 1]);
        if (inputs[k].type == kTypeOf<C> && steps[k + 1] == 1) {
          return reinterpret_cast<const C*>(source);
        }
        // What repeats is the same in every block, of which the first is the largest.
        if (steps[k + 1] != 0 || start == 0) {
          load<C>(inputs[k].type, source, steps[k + 1], n, blocks[k + 1]);
        }
        return blocks[k + 1];
      };
      const std::array<const C*, N> in{input(K)...};
      std::byte* target = out.at(offsets[0] + start * steps[0]);
      const bool direct = out.type == kTypeOf<C> && steps[0] == 1;
      C* result = direct ? reinterpret_cast<C*>(target) : blocks[0];
      if (any_hard<C>(op, n, in[K]...)) {
        if constexpr (HasHard<Op> && !std::is_integral_v<C>) {
          for (int64_t i = 0; i < n; ++i) {
            result[i] = op.hard(in[K][i]...) ? op.exact(in[K][i]...) : op(in[K][i]...);
          }
        }
      } else {
        EDGEWISE_INDEPENDENT
        for (int64_t i = 0; i < n; ++i) result[i] = use(in[K][i]...);
      }
      if (!direct) store<C>(out.type, result, n, target, steps[0]);
    }
  });
}

// Type in which an operation computes, and type of its result.
struct ElementwiseTypes {
  ScalarType common;
  ScalarType result;
};

// Checks types, broadcasts, resizes `out`; views of the operands come out expanded.
Status prepare_elementwise(KernelContext& context, std::span<const Operand> operands,
                           std::span<ScalarView* const> scalars, std::span<View> views, Tensor* out,
                           ElementwiseTypes types);

// The type that the operands promote to, with the rule applied.
ElementwiseTypes elementwise_types(std::span<const Operand> operands, ResultRule rule);

// Computes in given types, which lets operations with rules of their own in.
template <typename Op, size_t N>
Status run_elementwise(KernelContext& context, const std::array<Operand, N>& operands, Tensor* out,
                       Op op, ElementwiseTypes types) {
  std::array<View, N> views;
  std::array<ScalarView, N> scalars = [&]<size_t... K>(std::index_sequence<K...>) {
    return std::array<ScalarView, N>{ScalarView(operands[K].number)...};
  }
  (std::make_index_sequence<N>());
  std::array<ScalarView*, N> pointers;
  for (size_t k = 0; k < N; ++k) pointers[k] = &scalars[k];
  EDGEWISE_RETURN_IF_ERROR(prepare_elementwise(context, operands, pointers, views, out, types));
  auto apply = [&](auto c) {
    apply_blocks<decltype(c)>(view_of(*out), views, op, std::make_index_sequence<N>());
  };
  if constexpr (requires { Op::kFloatingOnly; }) {
    with_floating_type(types.common, apply);
  } else if constexpr (requires { Op::kIntegralOnly; }) {
    apply(int64_t{});
  } else {
    with_compute_type(types.common, apply);
  }
  if constexpr (requires { op.failure; }) {
    if (op.failure) return context.fail(Code::kInvalidArgument, "%s", op.failure);
  }
  return context.status();
}

template <typename Op, size_t N>
Status run_elementwise(KernelContext& context, const std::array<Operand, N>& operands, Tensor* out,
                       Op op, ResultRule rule) {
  if (!context.ok()) return context.status();
  return run_elementwise(context, operands, out, op, elementwise_types(operands, rule));
}

// Kernels of operations without parameters of their own, for registration tables.
template <typename Op>
Status unary(KernelContext& context) {
  const Operand a = tensor_operand(context, 0);
  Tensor* out = elementwise_output(context, 1);
  return run_elementwise<Op, 1>(context, {a}, out, Op(), Op::kRule);
}

template <typename Op>
Status binary(KernelContext& context) {
  const Operand a = tensor_operand(context, 0), b = tensor_operand(context, 1);
  Tensor* out = elementwise_output(context, 2);
  return run_elementwise<Op, 2>(context, {a, b}, out, Op(), Op::kRule);
}

template <typename Op>
Status binary_with_scalar(KernelContext& context) {
  const Operand a = tensor_operand(context, 0), b = scalar_operand(context, 1);
  Tensor* out = elementwise_output(context, 2);
  return run_elementwise<Op, 2>(context, {a, b}, out, Op(), Op::kRule);
}

}  // namespace EDGEWISE_TARGET
}  // namespace edgewise
