#include "element.h"

#include <cstring>

#include "half.h"

namespace edgewise {
inline namespace EDGEWISE_TARGET {
namespace {

template <typename C, typename T>
C from_element(T value) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    return convert<C>(static_cast<float>(value));
  } else {
    return convert<C>(value);
  }
}

template <typename T, typename C>
T to_element(C value) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    return T(static_cast<float>(value));
  } else {
    return convert<T>(value);
  }
}

// A bool's byte may be anything in a file; it is read as a number.
template <typename T>
using Storage = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;

template <typename C, typename T>
void load_as(const std::byte* source, int64_t stride, int64_t count, C* target) {
  const auto* typed = reinterpret_cast<const Storage<T>*>(source);
  auto element = [](Storage<T> value) {
    if constexpr (std::is_same_v<T, bool>)
      return static_cast<C>(value != 0);
    else
      return from_element<C, T>(value);
  };
  if (stride == 0) {
    const C value = element(*typed);
    for (int64_t i = 0; i < count; ++i) target[i] = value;
  } else if (stride == 1) {
    if constexpr (std::is_same_v<T, Half> && std::is_same_v<C, float>) {
      to_floats(typed, count, target);
    } else {
      for (int64_t i = 0; i < count; ++i) target[i] = element(typed[i]);
    }
  } else {
    for (int64_t i = 0; i < count; ++i) target[i] = element(typed[i * stride]);
  }
}

template <typename C, typename T>
void store_as(const C* source, int64_t count, std::byte* target, int64_t stride) {
  auto* typed = reinterpret_cast<Storage<T>*>(target);
  if (stride == 1) {
    if constexpr (std::is_same_v<T, Half> && std::is_same_v<C, float>) {
      to_halves(source, count, typed);
    } else {
      for (int64_t i = 0; i < count; ++i) typed[i] = to_element<T, C>(source[i]);
    }
  } else {
    for (int64_t i = 0; i < count; ++i) typed[i * stride] = to_element<T, C>(source[i]);
  }
}

int category(ScalarType type) {
  if (is_floating(type)) return 2;
  return type == ScalarType::kBool ? 0 : 1;
}

bool is_unsigned(ScalarType type) {
  return type == ScalarType::kByte || type == ScalarType::kUInt16 || type == ScalarType::kUInt32 ||
         type == ScalarType::kUInt64;
}

// Signed integer of the given size in bytes; larger ones do not exist.
ScalarType signed_integer(size_t bytes) {
  switch (bytes) {
    case 1:
      return ScalarType::kChar;
    case 2:
      return ScalarType::kShort;
    case 4:
      return ScalarType::kInt;
    default:
      return ScalarType::kLong;
  }
}

ScalarType combine(std::optional<ScalarType> higher, std::optional<ScalarType> lower,
                   ScalarType none) {
  if (!higher) return lower.value_or(none);
  if (!lower || category(*higher) >= category(*lower)) return *higher;
  return promote(*higher, *lower);
}

}  // namespace

bool is_integral(ScalarType type) {
  switch (type) {
    case ScalarType::kByte:
    case ScalarType::kChar:
    case ScalarType::kShort:
    case ScalarType::kInt:
    case ScalarType::kLong:
    case ScalarType::kBool:
    case ScalarType::kUInt16:
    case ScalarType::kUInt32:
      return true;
    default:
      return false;
  }
}

ScalarType promote(ScalarType a, ScalarType b) {
  if (a == b) return a;
  if (category(a) != category(b)) return category(a) > category(b) ? a : b;
  const size_t size_a = element_size(a), size_b = element_size(b);
  if (category(a) == 2) {
    if (size_a == size_b) return ScalarType::kFloat;  // float16 with bfloat16
    return size_a > size_b ? a : b;
  }
  if (is_unsigned(a) == is_unsigned(b)) return size_a > size_b ? a : b;
  const size_t unsigned_size = is_unsigned(a) ? size_a : size_b;
  const size_t signed_size = is_unsigned(a) ? size_b : size_a;
  return signed_integer(signed_size > unsigned_size ? signed_size : unsigned_size * 2);
}

bool can_store(ScalarType result, ScalarType stored) {
  return is_computable(stored) && category(result) <= category(stored);
}

TypePromotion& TypePromotion::add(const Tensor& tensor) {
  auto& slot = tensor.rank() == 0 ? zero_dim_ : dimensioned_;
  slot = slot ? promote(*slot, tensor.type()) : tensor.type();
  return *this;
}

TypePromotion& TypePromotion::add(const Scalar& scalar) {
  const ScalarType type = scalar.kind == Scalar::Kind::kDouble ? ScalarType::kFloat
                          : scalar.kind == Scalar::Kind::kInt  ? ScalarType::kLong
                                                               : ScalarType::kBool;
  scalar_ = scalar_ ? promote(*scalar_, type) : type;
  return *this;
}

ScalarType TypePromotion::result() const {
  constexpr ScalarType none = ScalarType::kFloat;
  if (!zero_dim_ && !scalar_) return combine(dimensioned_, {}, none);
  return combine(dimensioned_, combine(zero_dim_, scalar_, none), none);
}

#define EDGEWISE_DISPATCH(type, call)                 \
  switch (type) {                                     \
    case ScalarType::kByte:                           \
      return call(uint8_t);                           \
    case ScalarType::kChar:                           \
      return call(int8_t);                            \
    case ScalarType::kShort:                          \
      return call(int16_t);                           \
    case ScalarType::kInt:                            \
      return call(int32_t);                           \
    case ScalarType::kLong:                           \
      return call(int64_t);                           \
    case ScalarType::kHalf:                           \
      return call(Half);                              \
    case ScalarType::kFloat:                          \
      return call(float);                             \
    case ScalarType::kDouble:                         \
      return call(double);                            \
    case ScalarType::kBool:                           \
      return call(bool);                              \
    case ScalarType::kBFloat16:                       \
      return call(BFloat16);                          \
    case ScalarType::kUInt16:                         \
      return call(uint16_t);                          \
    case ScalarType::kUInt32:                         \
      return call(uint32_t);                          \
    default:                                          \
      return; /* kernels check is_computable first */ \
  }

template <typename C>
void load(ScalarType type, const std::byte* source, int64_t stride, int64_t count, C* target) {
#define EDGEWISE_LOAD(T) load_as<C, T>(source, stride, count, target)
  EDGEWISE_DISPATCH(type, EDGEWISE_LOAD)
#undef EDGEWISE_LOAD
}

template <typename C>
void store(ScalarType type, const C* source, int64_t count, std::byte* target, int64_t stride) {
#define EDGEWISE_STORE(T) store_as<C, T>(source, count, target, stride)
  EDGEWISE_DISPATCH(type, EDGEWISE_STORE)
#undef EDGEWISE_STORE
}

template void load(ScalarType, const std::byte*, int64_t, int64_t, float*);
template void load(ScalarType, const std::byte*, int64_t, int64_t, double*);
template void load(ScalarType, const std::byte*, int64_t, int64_t, int64_t*);
template void load(ScalarType, const std::byte*, int64_t, int64_t, int32_t*);
template void store(ScalarType, const int32_t*, int64_t, std::byte*, int64_t);
template void store(ScalarType, const float*, int64_t, std::byte*, int64_t);
template void store(ScalarType, const double*, int64_t, std::byte*, int64_t);
template void store(ScalarType, const int64_t*, int64_t, std::byte*, int64_t);

}  // namespace EDGEWISE_TARGET
}  // namespace edgewise
