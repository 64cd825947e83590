// Element types inside kernels.
//
// Kernels compute in one of three types: float (float32, float16, bfloat16), double
// (float64) or int64_t (bool and integers; it wraps, and storing truncates, which gives
// what the narrow type would have given). Blocks of elements are converted on the way
// in and out, so that a kernel is instantiated three times and not once per pair of types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "target.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {

inline bool is_floating(ScalarType type) {
  return type == ScalarType::kFloat || type == ScalarType::kDouble || type == ScalarType::kHalf ||
         type == ScalarType::kBFloat16;
}
inline bool is_half(ScalarType type) {
  return type == ScalarType::kHalf || type == ScalarType::kBFloat16;
}
// Bool counts as integral.
bool is_integral(ScalarType type);
// Has a compute type (uint64 and the quantized types have none: they are only copied).
inline bool is_computable(ScalarType type) { return is_floating(type) || is_integral(type); }

// The type that holds both, as torch.promote_types.
ScalarType promote(ScalarType a, ScalarType b);
// Whether a result may be stored as another type (not float to integer, nor number to bool).
bool can_store(ScalarType result, ScalarType stored);

// torch.result_type over tensors and scalars: tensors with dimensions decide before
// those without, and these before scalars, unless a later one is of a higher category.
class TypePromotion {
 public:
  TypePromotion& add(const Tensor& tensor);
  TypePromotion& add(const Scalar& scalar);
  ScalarType result() const;

 private:
  std::optional<ScalarType> dimensioned_, zero_dim_, scalar_;
};

// Floating stays, anything else becomes float32.
inline ScalarType to_floating(ScalarType type) {
  return is_floating(type) ? type : ScalarType::kFloat;
}

// Calls `function` with a value of the compute type of `type`.
template <typename Function>
auto with_compute_type(ScalarType type, Function&& function) {
  if (type == ScalarType::kDouble) return function(double{});
  if (is_floating(type)) return function(float{});
  return function(int64_t{});
}
// The same for kernels that are defined for floating types only.
template <typename Function>
auto with_floating_type(ScalarType type, Function&& function) {
  if (type == ScalarType::kDouble) return function(double{});
  return function(float{});
}

// The same with int32_t for integers that it holds: for kernels that compute in it what they
// would in int64_t, since only the low bits count, or nothing grows.
inline bool is_short(ScalarType type) {
  return is_integral(type) && element_size(type) <= 4 && type != ScalarType::kUInt32;
}
template <typename Function>
auto with_short_compute_type(ScalarType type, Function&& function) {
  if (is_short(type)) return function(int32_t{});
  return with_compute_type(type, function);
}

// The same with integers as wide as the elements, for loops that are compiled for each.
template <typename Function>
auto with_narrow_compute_type(ScalarType type, Function&& function) {
  if (type == ScalarType::kByte) return function(uint8_t{});
  if (type == ScalarType::kChar) return function(int8_t{});
  if (type == ScalarType::kShort) return function(int16_t{});
  return with_short_compute_type(type, function);
}

// The type by way of which elements of one type become those of another.
template <typename Function>
auto with_type_between(ScalarType a, ScalarType b, Function&& function) {
  if (is_short(a) && is_short(b)) return function(int32_t{});
  return with_compute_type(promote(a, b), function);
}

template <typename C>
inline constexpr ScalarType kTypeOf = std::is_same_v<C, float>     ? ScalarType::kFloat
                                      : std::is_same_v<C, double>  ? ScalarType::kDouble
                                      : std::is_same_v<C, int8_t>  ? ScalarType::kChar
                                      : std::is_same_v<C, uint8_t> ? ScalarType::kByte
                                      : std::is_same_v<C, int16_t> ? ScalarType::kShort
                                      : std::is_same_v<C, int32_t> ? ScalarType::kInt
                                                                   : ScalarType::kLong;

// Reads `count` elements, `stride` elements apart, as C. `source` is the first.
template <typename C>
void load(ScalarType type, const std::byte* source, int64_t stride, int64_t count, C* target);
template <typename C>
void store(ScalarType type, const C* source, int64_t count, std::byte* target, int64_t stride);

// Moves elements of `size` bytes, 1, 2, 4 or 8, from or to offsets `stride` elements apart; those
// that are read may lie where the first is written.
void gather(size_t size, const std::byte* source, int64_t stride, int64_t count, std::byte* target);
void scatter(size_t size, const std::byte* source, int64_t count, std::byte* target,
             int64_t stride);

// Reads elements as another type, or as their own; bools come out as 0 or 1. At most
// kMostInBlock, unless the types are the same.
inline constexpr int64_t kMostInBlock = 512;
void read_block(ScalarType type, const std::byte* source, int64_t stride, int64_t count,
                ScalarType as, std::byte* target);
// Stores a block of elements of a type as another, or as its own.
void write_block(ScalarType type, const std::byte* source, int64_t count, ScalarType as,
                 std::byte* target, int64_t stride);

template <typename C>
C load_one(ScalarType type, const std::byte* source) {
  C value{};
  load<C>(type, source, 1, 1, &value);
  return value;
}

// Conversion without undefined behaviour: what does not fit becomes the lowest int64.
template <typename To, typename From>
To convert(From value) {
  if constexpr (std::is_same_v<To, bool>) {
    return value != From(0);
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    constexpr From limit = static_cast<From>(9223372036854775808.0);
    const int64_t whole =
        value >= -limit && value < limit ? static_cast<int64_t>(value) : INT64_MIN;
    return static_cast<To>(whole);
  } else {
    return static_cast<To>(value);
  }
}

template <typename C>
C scalar_to(const Scalar& scalar) {
  return scalar.kind == Scalar::Kind::kDouble ? convert<C>(scalar.d) : convert<C>(scalar.i);
}

// Integers wrap; signed overflow would be undefined.
template <typename C>
C wrap_add(C a, C b) {
  if constexpr (std::is_integral_v<C>) {
    return static_cast<C>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  } else {
    return a + b;
  }
}
template <typename C>
C wrap_sub(C a, C b) {
  if constexpr (std::is_integral_v<C>) {
    return static_cast<C>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
  } else {
    return a - b;
  }
}
template <typename C>
C wrap_mul(C a, C b) {
  if constexpr (std::is_integral_v<C>) {
    return static_cast<C>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  } else {
    return a * b;
  }
}

extern template void load(ScalarType, const std::byte*, int64_t, int64_t, float*);
extern template void load(ScalarType, const std::byte*, int64_t, int64_t, double*);
extern template void load(ScalarType, const std::byte*, int64_t, int64_t, int64_t*);
extern template void load(ScalarType, const std::byte*, int64_t, int64_t, int32_t*);
extern template void store(ScalarType, const int32_t*, int64_t, std::byte*, int64_t);
extern template void store(ScalarType, const float*, int64_t, std::byte*, int64_t);
extern template void store(ScalarType, const double*, int64_t, std::byte*, int64_t);
extern template void store(ScalarType, const int64_t*, int64_t, std::byte*, int64_t);

}  // namespace HWY_NAMESPACE
}  // namespace edgewise
