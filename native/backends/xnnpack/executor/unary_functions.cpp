#include "backends/xnnpack/executor/unary_functions.h"

#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>

#define EDGEWISE_TARGETS_WITHOUT HWY_SSE4
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/xnnpack/executor/unary_functions.cpp"
#include "core/simd_foreach.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace edgewise::xnnpack {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Of denormal numbers, too, where the CPU takes them for zeros.
float logarithm(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if (bits == 0 || bits > 0x7fffff) return std::log(x);
  return static_cast<float>(std::log(static_cast<double>(bits)) - 149 * 0.6931471805599453);
}

float by_the_library(UnaryFunction function, float x) {
  switch (function) {
    case UnaryFunction::kExp:
      return std::exp(x);
    case UnaryFunction::kSin:
      return std::sin(x);
    case UnaryFunction::kCos:
      return std::cos(x);
    default:
      return logarithm(x);
  }
}

// Computed in double, and so rounded once.
#if HWY_HAVE_FLOAT64
using Doubles = hn::ScalableTag<double>;
using Floats = hn::Rebind<float, Doubles>;
constexpr Doubles kDoubles;
constexpr Floats kFloats;
using Vector = hn::Vec<Doubles>;

template <size_t N>
HWY_INLINE Vector polynomial(Vector x, const double (&c)[N]) {
  Vector result = hn::Set(kDoubles, c[N - 1]);
  for (size_t i = 1; i < N; ++i) {
    result = hn::MulAdd(result, x, hn::Set(kDoubles, c[N - 1 - i]));
  }
  return result;
}

constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52: a sum with it is an integer

// `x` is within what float32 has results for.
HWY_INLINE Vector exp(Vector x) {
  const Vector shift = hn::Set(kDoubles, kRound);
  const Vector shifted = hn::MulAdd(x, hn::Set(kDoubles, 1.4426950408889634), shift);
  const Vector whole = hn::Sub(shifted, shift);
  const Vector r = hn::NegMulAdd(whole, hn::Set(kDoubles, 0.6931471805599453), x);
  // Taylor's: the next term is below 2^-33.
  const Vector y = polynomial(
      r, {1.0, 1.0, 1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040, 1.0 / 40320});
  const hn::RebindToUnsigned<Doubles> bits;
  const auto exponent = hn::Add(hn::BitCast(bits, shifted), hn::Set(bits, 1023));
  return hn::Mul(y, hn::BitCast(kDoubles, hn::ShiftLeft<52>(exponent)));
}

// x = q pi/2 + r, for |x| < 1e6. Of the cosine q is one more.
HWY_INLINE Vector sine(Vector x, uint64_t more) {
  const Vector shift = hn::Set(kDoubles, kRound);
  const Vector shifted = hn::MulAdd(x, hn::Set(kDoubles, 0.63661977236758134), shift);
  const Vector n = hn::Sub(shifted, shift);
  // pi/2 in three parts, of which the first two have few bits.
  Vector r = hn::NegMulAdd(n, hn::Set(kDoubles, 0x1.921fb544p+0), x);
  r = hn::NegMulAdd(n, hn::Set(kDoubles, 0x1.0b4611a6p-34), r);
  r = hn::NegMulAdd(n, hn::Set(kDoubles, 0x1.3198a2e037073p-69), r);
  const Vector z = hn::Mul(r, r);
  const Vector s =
      polynomial(z, {-0.16666666666666666, 0.008333333333330936, -0.00019841269836740532,
                     2.7557316093198404e-06, -2.5051129896450185e-08, 1.5917988979397435e-10});
  const Vector c =
      polynomial(z, {-0.5, 0.041666666666666664, -0.0013888888888887389, 2.48015872987544e-05,
                     -2.755731726587808e-07, 2.087614504941318e-09, -1.138254464534925e-11});
  const hn::RebindToUnsigned<Doubles> bits;
  const auto q = hn::Add(hn::BitCast(bits, shifted), hn::Set(bits, more));
  const auto is_odd = hn::Ne(hn::And(q, hn::Set(bits, 1)), hn::Zero(bits));
  const Vector result =
      hn::IfThenElse(hn::RebindMask(kDoubles, is_odd), hn::MulAdd(z, c, hn::Set(kDoubles, 1.0)),
                     hn::MulAdd(hn::Mul(r, z), s, r));
  const auto sign = hn::ShiftLeft<62>(hn::And(q, hn::Set(bits, 2)));
  return hn::Xor(result, hn::BitCast(kDoubles, sign));
}

// k ln(2) + ln(m), with m from sqrt(1/2) to sqrt(2), of normal numbers.
HWY_INLINE Vector log(Vector x) {
  const hn::RebindToSigned<Doubles> bits;
  const auto number = hn::BitCast(bits, x);
  const auto k = hn::ShiftRight<52>(hn::Sub(number, hn::Set(bits, 0x3fe6a09e667f3bcd)));
  const Vector m = hn::BitCast(kDoubles, hn::Sub(number, hn::ShiftLeft<52>(k)));
  const Vector one = hn::Set(kDoubles, 1.0);
  const Vector f = hn::Div(hn::Sub(m, one), hn::Add(m, one));
  // 2 atanh(f): the next term is below 2^-36 of it.
  const Vector series =
      polynomial(hn::Mul(f, f), {2.0, 2.0 / 3, 2.0 / 5, 2.0 / 7, 2.0 / 9, 2.0 / 11, 2.0 / 13});
  const Vector shift = hn::Set(kDoubles, kRound);
  const Vector whole = hn::Sub(hn::BitCast(kDoubles, hn::Add(hn::BitCast(bits, shift), k)), shift);
  return hn::MulAdd(whole, hn::Set(kDoubles, 0.6931471805599453), hn::Mul(series, f));
}

HWY_INLINE Vector compute(UnaryFunction function, Vector x) {
  if (function == UnaryFunction::kExp) return exp(x);
  if (function == UnaryFunction::kLog) return log(x);
  if (function == UnaryFunction::kCos) return sine(x, 1);
  return hn::IfThenElse(hn::Eq(x, hn::Zero(kDoubles)), x, sine(x, 0));  // of -0
}

// Whether `compute` is right about all of `x`. Above are infinity (to which not every target
// rounds), and angles that need more of pi.
HWY_INLINE bool are_computed(UnaryFunction function, hn::Vec<Floats> x) {
  switch (function) {
    case UnaryFunction::kExp:
      return hn::AllTrue(kFloats, hn::Lt(x, hn::Set(kFloats, 88.0f)));
    case UnaryFunction::kLog:
      return hn::AllTrue(kFloats, hn::And(hn::Ge(x, hn::Set(kFloats, FLT_MIN)),
                                          hn::Le(x, hn::Set(kFloats, FLT_MAX))));
    default:
      return hn::AllTrue(kFloats, hn::Lt(hn::Abs(x), hn::Set(kFloats, 1e6f)));
  }
}

void run(UnaryFunction function, const float* in, float* out, size_t count) {
  constexpr size_t kMostLanes = hn::MaxLanes(kDoubles);
  const size_t lanes = hn::Lanes(kDoubles);
  const auto least = hn::Set(kFloats, -150.0f);  // of which the power is zero
  for (size_t i = 0; i < count; i += lanes) {
    const size_t n = HWY_MIN(lanes, count - i);
    // Behind the last number there are zeros.
    const auto x = n == lanes ? hn::LoadU(kFloats, in + i) : hn::LoadN(kFloats, in + i, n);
    if (are_computed(function, x)) {
      const auto bounded = function == UnaryFunction::kExp ? hn::Max(x, least) : x;
      const auto y = hn::DemoteTo(kFloats, compute(function, hn::PromoteTo(kDoubles, bounded)));
      if (n == lanes) {
        hn::StoreU(y, kFloats, out + i);
      } else {
        hn::StoreN(y, kFloats, out + i, n);
      }
      continue;
    }
    float held[kMostLanes];
    hn::StoreN(x, kFloats, held, n);
    for (size_t lane = 0; lane < n; ++lane) out[i + lane] = by_the_library(function, held[lane]);
  }
}
#else
void run(UnaryFunction function, const float* in, float* out, size_t count) {
  for (size_t i = 0; i < count; ++i) out[i] = by_the_library(function, in[i]);
}
#endif

template <bool kIsInverse>
void run_sqrt(const float* in, float* out, size_t count) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  const auto root = [d](auto x) HWY_ATTR {
    const auto y = hn::Sqrt(x);
    return kIsInverse ? hn::Div(hn::Set(d, 1.0f), y) : y;
  };
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(root(hn::LoadU(d, in + i)), d, out + i);
  hn::StoreN(root(hn::LoadN(d, in + i, count - i)), d, out + i, count - i);
}

}  // namespace

void run_unary(UnaryFunction function, const float* in, float* out, size_t count) {
  switch (function) {
    case UnaryFunction::kSqrt:
      return run_sqrt<false>(in, out, count);
    case UnaryFunction::kRsqrt:
      return run_sqrt<true>(in, out, count);
    default:
      return run(function, in, out, count);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace edgewise::xnnpack
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace edgewise::xnnpack {

HWY_EXPORT(run_unary);

void run_unary_function(UnaryFunction function, const float* in, float* out, size_t count) {
  HWY_DYNAMIC_DISPATCH(run_unary)(function, in, out, count);
}

}  // namespace edgewise::xnnpack
#endif
