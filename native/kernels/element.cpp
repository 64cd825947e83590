#include "element.h"

#include <cstring>

#include "half.h"
#include "half_arrays.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

template <typename T>
constexpr bool kIsHalf = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

template <typename To, typename From>
To element_to(From value) {
  if constexpr (kIsHalf<From> || kIsHalf<To>) {
    return static_cast<To>(value);  // from or to float
  } else {
    return convert<To>(value);
  }
}

template <typename T>
void halves_to_floats(const T* source, int64_t count, float* target) {
  static_assert(sizeof(T) == sizeof(uint16_t));
  const auto* bits = reinterpret_cast<const uint16_t*>(source);
  std::is_same_v<T, Half> ? float16_to_floats(bits, count, target)
                          : bfloat16_to_floats(bits, count, target);
}

template <typename T>
void floats_to_halves(const float* source, int64_t count, T* target) {
  static_assert(sizeof(T) == sizeof(uint16_t));
  auto* bits = reinterpret_cast<uint16_t*>(target);
  std::is_same_v<T, Half> ? floats_to_float16(source, count, bits)
                          : floats_to_bfloat16(source, count, bits);
}

// A bool's byte may be anything in a file; it is read as a number.
template <typename T>
using Storage = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;

template <typename C, typename T>
void load_as(const std::byte* source, int64_t count, C* target) {
  const auto* typed = reinterpret_cast<const Storage<T>*>(source);
  if constexpr (std::is_same_v<T, C>) {
    std::memcpy(target, source, static_cast<size_t>(count) * sizeof(C));
  } else if constexpr (kIsHalf<T> && std::is_same_v<C, float>) {
    halves_to_floats(typed, count, target);
  } else if constexpr (kIsHalf<T> && !std::is_same_v<C, float>) {
    float held[kMostInBlock];
    for (int64_t start = 0; start < count; start += kMostInBlock) {
      const int64_t n = std::min(kMostInBlock, count - start);
      load_as<float, T>(source + start * sizeof(T), n, held);
      load_as<C, float>(reinterpret_cast<const std::byte*>(held), n, target + start);
    }
  } else {
    EDGEWISE_INDEPENDENT
    for (int64_t i = 0; i < count; ++i) {
      if constexpr (std::is_same_v<T, bool>)
        target[i] = static_cast<C>(typed[i] != 0);
      else
        target[i] = element_to<C>(typed[i]);
    }
  }
}

template <typename C, typename T>
void store_as(const C* source, int64_t count, std::byte* target) {
  auto* typed = reinterpret_cast<Storage<T>*>(target);
  if constexpr (std::is_same_v<T, C>) {
    std::memcpy(target, source, static_cast<size_t>(count) * sizeof(C));
  } else if constexpr (kIsHalf<T> && std::is_same_v<C, float>) {
    floats_to_halves(source, count, typed);
  } else if constexpr (kIsHalf<T> && !std::is_same_v<C, float>) {
    float held[kMostInBlock];
    for (int64_t start = 0; start < count; start += kMostInBlock) {
      const int64_t n = std::min(kMostInBlock, count - start);
      store_as<C, float>(source + start, n, reinterpret_cast<std::byte*>(held));
      store_as<float, T>(held, n, target + start * sizeof(T));
    }
  } else {
    EDGEWISE_INDEPENDENT
    for (int64_t i = 0; i < count; ++i) typed[i] = element_to<T>(source[i]);
  }
}

template <typename Unit>
void gather_units(const std::byte* source, int64_t stride, int64_t count, std::byte* target) {
  const auto* from = reinterpret_cast<const Unit*>(source);
  auto* to = reinterpret_cast<Unit*>(target);
  if (stride == 0) {
    const Unit value = *from;
    std::fill_n(to, count, value);
  } else {
    EDGEWISE_INDEPENDENT
    for (int64_t i = 0; i < count; ++i) to[i] = from[i * stride];
  }
}

template <typename Unit>
void scatter_units(const std::byte* source, int64_t count, std::byte* target, int64_t stride) {
  const auto* from = reinterpret_cast<const Unit*>(source);
  auto* to = reinterpret_cast<Unit*>(target);
  for (int64_t i = 0; i < count; ++i) to[i * stride] = from[i];
}

// Bytes of bools may be anything in a file.
void make_bools(std::byte* block, int64_t count) {
  auto* bytes = reinterpret_cast<uint8_t*>(block);
  EDGEWISE_INDEPENDENT
  for (int64_t i = 0; i < count; ++i) bytes[i] = bytes[i] != 0 ? 1 : 0;
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

namespace {

template <typename C>
[[gnu::noinline]] void load_row(ScalarType type, const std::byte* source, int64_t count,
                                C* target) {
#define EDGEWISE_LOAD(T) load_as<C, T>(source, count, target)
  EDGEWISE_DISPATCH(type, EDGEWISE_LOAD)
#undef EDGEWISE_LOAD
}

template <typename C>
[[gnu::noinline]] void store_row(ScalarType type, const C* source, int64_t count,
                                 std::byte* target) {
#define EDGEWISE_STORE(T) store_as<C, T>(source, count, target)
  EDGEWISE_DISPATCH(type, EDGEWISE_STORE)
#undef EDGEWISE_STORE
}

}  // namespace

template <typename C>
void load(ScalarType type, const std::byte* source, int64_t stride, int64_t count, C* target) {
  if (stride == 1 || count < 2) return load_row<C>(type, source, count, target);
  if (stride == 0) {
    load_row<C>(type, source, 1, target);
    std::fill_n(target + 1, count - 1, *target);
    return;
  }
  const size_t size = element_size(type);
  alignas(64) std::byte held[kMostInBlock * 8];
  for (int64_t start = 0; start < count; start += kMostInBlock) {
    const int64_t n = std::min(kMostInBlock, count - start);
    gather(size, source + start * stride * static_cast<int64_t>(size), stride, n, held);
    load_row<C>(type, held, n, target + start);
  }
}

template <typename C>
void store(ScalarType type, const C* source, int64_t count, std::byte* target, int64_t stride) {
  if (stride == 1 || count < 2) return store_row<C>(type, source, count, target);
  const size_t size = element_size(type);
  alignas(64) std::byte held[kMostInBlock * 8];
  for (int64_t start = 0; start < count; start += kMostInBlock) {
    const int64_t n = std::min(kMostInBlock, count - start);
    store_row<C>(type, source + start, n, held);
    scatter(size, held, n, target + start * stride * static_cast<int64_t>(size), stride);
  }
}

void gather(size_t size, const std::byte* source, int64_t stride, int64_t count,
            std::byte* target) {
  if (stride == 1 || count == 1) {
    std::memmove(target, source, static_cast<size_t>(count) * size);
  } else if (size == 1) {
    gather_units<uint8_t>(source, stride, count, target);
  } else if (size == 2) {
    gather_units<uint16_t>(source, stride, count, target);
  } else if (size == 4) {
    gather_units<uint32_t>(source, stride, count, target);
  } else {
    gather_units<uint64_t>(source, stride, count, target);
  }
}

void scatter(size_t size, const std::byte* source, int64_t count, std::byte* target,
             int64_t stride) {
  if (stride == 1 || count == 1) {
    std::memmove(target, source, static_cast<size_t>(count) * size);
  } else if (size == 1) {
    scatter_units<uint8_t>(source, count, target, stride);
  } else if (size == 2) {
    scatter_units<uint16_t>(source, count, target, stride);
  } else if (size == 4) {
    scatter_units<uint32_t>(source, count, target, stride);
  } else {
    scatter_units<uint64_t>(source, count, target, stride);
  }
}

void read_block(ScalarType type, const std::byte* source, int64_t stride, int64_t count,
                ScalarType as, std::byte* target) {
  if (type == as) {
    gather(element_size(type), source, stride, count, target);
    if (type == ScalarType::kBool) make_bools(target, count);
    return;
  }
  with_type_between(type, as, [&](auto c) {
    using C = decltype(c);
    if (as == kTypeOf<C>) return load<C>(type, source, stride, count, reinterpret_cast<C*>(target));
    alignas(64) C held[kMostInBlock];
    load<C>(type, source, stride, count, held);
    store<C>(as, held, count, target, 1);
  });
}

void write_block(ScalarType type, const std::byte* source, int64_t count, ScalarType as,
                 std::byte* target, int64_t stride) {
  if (type == as) return scatter(element_size(type), source, count, target, stride);
  with_type_between(type, as, [&](auto c) {
    using C = decltype(c);
    if (type == kTypeOf<C>) {
      return store<C>(as, reinterpret_cast<const C*>(source), count, target, stride);
    }
    alignas(64) C held[kMostInBlock];
    load<C>(type, source, 1, count, held);
    store<C>(as, held, count, target, stride);
  });
}

template void load(ScalarType, const std::byte*, int64_t, int64_t, float*);
template void load(ScalarType, const std::byte*, int64_t, int64_t, double*);
template void load(ScalarType, const std::byte*, int64_t, int64_t, int64_t*);
template void load(ScalarType, const std::byte*, int64_t, int64_t, int32_t*);
template void store(ScalarType, const int32_t*, int64_t, std::byte*, int64_t);
template void store(ScalarType, const float*, int64_t, std::byte*, int64_t);
template void store(ScalarType, const double*, int64_t, std::byte*, int64_t);
template void store(ScalarType, const int64_t*, int64_t, std::byte*, int64_t);

}  // namespace HWY_NAMESPACE
}  // namespace edgewise
