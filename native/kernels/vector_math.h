// Elementary functions without branches, calls or tables, which loops over arrays turn into
// vector instructions.
//
// Those for double are right to a few units in the last place; those for float are computed
// in double where that costs little, else in float to about two units. Arguments for which
// a function is not made satisfy needs_slow_*(), and are left to the standard library. NaN stays
// NaN, infinities and signed zeros come out as the standard library has them.
//
// Not those of hwy/contrib/math: of Highway 1.2 exp, exp2, log, log1p, sin, cos and asinh are wrong
// at NaN, infinities, zero or negative numbers, and expm1, log1p, cos, sinh and asinh by 2 to 3
// units where these have 0.5 to 1.5. In time they are 0.4 (sinh) to 1.3 (expm1) of these, exp 1.2,
// log 0.8, tanh 1.0 (measured with AVX2 and AVX-512, alike), before what special values would add.
#pragma once

#include "target.h"

#define EDGEWISE_INLINE [[gnu::always_inline]] inline

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace math {

// c[0] + c[1] x + ...; the powers of x that are needed twice are shared by the compiler.
template <typename C, size_t N>
EDGEWISE_INLINE C polynomial(C x, const C (&c)[N]) {
  C result = c[N - 1];
  // Compilers leave longer loops than 16 as they are, and then the loop around them, too.
#pragma GCC unroll 32
  for (size_t i = 1; i < N; ++i) result = result * x + c[N - 1 - i];
  return result;
}

// Adding it leaves an integer in the low bits of the sum, rounded to nearest.
inline constexpr float kRoundFloat = 0x1.8p23f;
inline constexpr double kRoundDouble = 0x1.8p52;
inline constexpr double kInverseLn2 = 1.4426950408889634;
inline constexpr double kLn2High = 0x1.62e42fefp-1;  // products with small integers are exact
inline constexpr double kLn2Low = 0x1.473de6af278edp-34;

// 2^n of an integer -1022 <= n <= 1023.
EDGEWISE_INLINE double power_of_two(double n) {
  const auto bits = std::bit_cast<uint64_t>(n + (kRoundDouble + 1023.0));
  return std::bit_cast<double>(bits << 52);
}

struct ExpParts {
  double tail;        // e^r - 1, where x = n ln 2 + r
  double half, rest;  // 2^n as two factors, since n may be out of range
};

EDGEWISE_INLINE ExpParts exp_parts(double x) {
  x = x < -780.0 ? -780.0 : x;
  x = x > 720.0 ? 720.0 : x;
  const double n = (x * kInverseLn2 + kRoundDouble) - kRoundDouble;
  const double r = (x - n * kLn2High) - n * kLn2Low;
  const double first = (n * 0.5 + kRoundDouble) - kRoundDouble;
  const double p = polynomial(
      r, {0.5000000000000001, 0.16666666666666669, 0.041666666666623824, 0.008333333333330039,
          0.0013888888917367081, 0.00019841269863171557, 2.4801521057868204e-05,
          2.7557268276905696e-06, 2.7620201591031547e-07, 2.5100472505694996e-08});
  return {r + r * r * p, power_of_two(first), power_of_two(n - first)};
}

EDGEWISE_INLINE double exp(double x) {
  const ExpParts parts = exp_parts(x);
  return (1.0 + parts.tail) * parts.half * parts.rest;
}

// Whole powers come out exact; x ln 2 as a whole would lose bits.
EDGEWISE_INLINE double exp2(double x) {
  x = x < -1080.0 ? -1080.0 : x;
  x = x > 1030.0 ? 1030.0 : x;
  const double n = (x + kRoundDouble) - kRoundDouble;
  const double first = (n * 0.5 + kRoundDouble) - kRoundDouble;
  const ExpParts parts = exp_parts((x - n) * 0.69314718055994531);
  return (1.0 + parts.tail) * power_of_two(first) * power_of_two(n - first);
}

// |x| > 700 goes through infinity.
EDGEWISE_INLINE double expm1(double x) {
  const ExpParts parts = exp_parts(x);
  const double scale = parts.half * parts.rest;
  const double result = scale * parts.tail + (scale - 1.0);
  return x == 0 ? x : result;
}
EDGEWISE_INLINE bool needs_slow_expm1(double x) { return x > 700.0; }

struct FloatExpParts {
  float tail;         // e^r - 1, where x = n ln 2 + r
  float first, rest;  // 2^n as two factors
};

// e^r and 2^n, of n as the low bits of `shifted`.
EDGEWISE_INLINE FloatExpParts exp_parts(float r, float shifted) {
  const float p = polynomial(r, {0.5f, 0.16666576666119928f, 0.04166655421298415f,
                                 0.008363232883682618f, 0.0013926250831497611f});
  const int32_t whole = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRoundFloat);
  const int32_t first = whole >> 1, second = whole - first;
  return {r + r * r * p, std::bit_cast<float>((first + 127) << 23),
          std::bit_cast<float>((second + 127) << 23)};
}

EDGEWISE_INLINE FloatExpParts exp_parts(float x) {
  x = x < -120.0f ? -120.0f : x;
  x = x > 90.0f ? 90.0f : x;
  const float shifted = x * 1.44269504f + kRoundFloat;
  const float n = shifted - kRoundFloat;
  return exp_parts((x - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f, shifted);
}

EDGEWISE_INLINE float exp2(float x) {
  x = x < -151.0f ? -151.0f : x;
  x = x > 129.0f ? 129.0f : x;
  const float shifted = x + kRoundFloat;
  const FloatExpParts parts = exp_parts((x - (shifted - kRoundFloat)) * 0.693147181f, shifted);
  return (1.0f + parts.tail) * parts.first * parts.rest;
}

EDGEWISE_INLINE float exp(float x) {
  const FloatExpParts parts = exp_parts(x);
  return (1.0f + parts.tail) * parts.first * parts.rest;
}

EDGEWISE_INLINE float expm1(float x) {
  const FloatExpParts parts = exp_parts(x);
  const float scale = parts.first * parts.rest;
  const float result = scale * parts.tail + (scale - 1.0f);
  return x == 0 ? x : result;
}

EDGEWISE_INLINE double log(double x) {
  constexpr uint64_t one = 0x3FF0000000000000, root = 0x3FE6A09E667F3BCD;  // 1, sqrt(1/2)
  const bool tiny = x < 0x1p-1022;
  const double scaled = tiny ? x * 0x1p54 : x;
  const uint64_t bits = std::bit_cast<uint64_t>(scaled) + (one - root);
  // The exponent becomes the low bits of a large double.
  const double e = std::bit_cast<double>((bits >> 52) | 0x4330000000000000) - (0x1p52 + 1023.0) -
                   (tiny ? 54.0 : 0.0);
  const double f = std::bit_cast<double>((bits & 0x000FFFFFFFFFFFFF) + root) - 1.0;
  const double s = f / (2.0 + f), z = s * s;
  const double q = polynomial(
      z, {0.666666666666667, 0.3999999999989889, 0.28571428626253836, 0.22222211089379496,
          0.1818289243253687, 0.15331611722055008, 0.14617807153417325});
  // log(1 + f) = 2 s + s z q, and 2 s = f - s f.
  double result = e * kLn2High + (f - (s * (f - z * q) - e * kLn2Low));
  result = x > std::numeric_limits<double>::max() ? x : result;
  result = x == 0 ? -std::numeric_limits<double>::infinity() : result;
  return x >= 0 ? result : std::numeric_limits<double>::quiet_NaN();
}

// x = 2^exponent (1 + fraction), 1 + fraction from sqrt(1/2) to sqrt(2); logarithm is that of it.
struct FloatLogParts {
  float exponent, fraction, tail;  // the logarithm is fraction - tail
};

EDGEWISE_INLINE FloatLogParts log_parts(float x) {
  constexpr uint32_t one = 0x3F800000, root = 0x3F3504F3;  // 1, sqrt(1/2)
  const bool tiny = x < 0x1p-126f;
  const float scaled = tiny ? x * 0x1p24f : x;
  const uint32_t bits = std::bit_cast<uint32_t>(scaled) + (one - root);
  const int32_t exponent = static_cast<int32_t>(bits >> 23) - (tiny ? 127 + 24 : 127);
  const float f = std::bit_cast<float>((bits & 0x007FFFFFu) + root) - 1.0f;
  const float s = f / (2.0f + f), z = s * s;
  const float q = polynomial(z, {0.66666686f, 0.39988591f, 0.29585511f});
  return {static_cast<float>(exponent), f, s * (f - z * q)};
}

// What is no positive finite number has its own logarithm.
EDGEWISE_INLINE float log_or_special(float x, float result) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  result = x > std::numeric_limits<float>::max() ? x : result;
  result = x == 0 ? -infinity : result;
  return x >= 0 ? result : std::numeric_limits<float>::quiet_NaN();
}

EDGEWISE_INLINE float log(float x) {
  const FloatLogParts parts = log_parts(x);
  const float low = parts.tail - parts.exponent * 0x1.7f7d1cp-20f;
  return log_or_special(x, parts.exponent * 0x1.62e4p-1f + (parts.fraction - low));
}

// Powers of the base come out whole.
EDGEWISE_INLINE float log2(float x) {
  const FloatLogParts parts = log_parts(x);
  return log_or_special(x, parts.exponent + (parts.fraction - parts.tail) * 1.44269504f);
}
EDGEWISE_INLINE float log10(float x) {
  const FloatLogParts parts = log_parts(x);
  // log10(2) in two parts, of which the first times an exponent is exact.
  const float low = parts.exponent * 4.605039e-06f + (parts.fraction - parts.tail) * 0.43429448f;
  return log_or_special(x, parts.exponent * 0.301025391f + low);
}

EDGEWISE_INLINE float log1p(float x) {
  const float u = 1.0f + x;
  const float correction = (x - (u - 1.0f)) / u;
  const float result = log(u) + (correction == correction ? correction : 0.0f);
  return x == 0 || x > std::numeric_limits<float>::max() ? x : result;
}

// A product with the whole exponent is exact, so that powers of the base come out whole.
EDGEWISE_INLINE double log2(double x) { return log(x) * 1.4426950408889634; }
EDGEWISE_INLINE double log10(double x) { return log(x) * 0.43429448190325182; }

EDGEWISE_INLINE double log1p(double x) {
  const double u = 1.0 + x;
  // What the sum lost, which the logarithm's slope brings back.
  const double correction = (x - (u - 1.0)) / u;
  const double result = log(u) + (correction == correction ? correction : 0.0);
  return x == 0 || x > std::numeric_limits<double>::max() ? x : result;
}

// sin and cos of x = q pi/2 + r, and q's low bits. Larger arguments need more of pi.
struct Quadrant {
  double sin, cos;
  uint64_t q;
};
EDGEWISE_INLINE bool needs_slow_angle(double x) { return !(std::abs(x) < 1e6); }
EDGEWISE_INLINE Quadrant sin_cos(double x) {
  const double shifted = x * 0.63661977236758134 + kRoundDouble;
  const double n = shifted - kRoundDouble;
  const double r = ((x - n * 0x1.921fb544p+0) - n * 0x1.0b4611a6p-34) - n * 0x1.3198a2e037073p-69;
  const double z = r * r;
  const double s =
      polynomial(z, {-0.16666666666666666, 0.008333333333330936, -0.00019841269836740532,
                     2.7557316093198404e-06, -2.5051129896450185e-08, 1.5917988979397435e-10});
  const double c =
      polynomial(z, {0.041666666666666664, -0.0013888888888887389, 2.48015872987544e-05,
                     -2.755731726587808e-07, 2.087614504941318e-09, -1.138254464534925e-11});
  return {r + r * z * s, 1.0 - (0.5 * z - z * z * c), std::bit_cast<uint64_t>(shifted)};
}
EDGEWISE_INLINE double with_sign_bit(double x, uint64_t bit) {
  return std::bit_cast<double>(std::bit_cast<uint64_t>(x) ^ (bit << 63));
}
EDGEWISE_INLINE double sin(double x) {
  const Quadrant at = sin_cos(x);
  const double result = with_sign_bit(at.q & 1 ? at.cos : at.sin, (at.q >> 1) & 1);
  return x == 0 ? x : result;
}
EDGEWISE_INLINE double cos(double x) {
  const Quadrant at = sin_cos(x);
  return with_sign_bit(at.q & 1 ? at.sin : at.cos, ((at.q + 1) >> 1) & 1);
}
EDGEWISE_INLINE double tan(double x) {
  const Quadrant at = sin_cos(x);
  const double result = (at.q & 1 ? -at.cos : at.sin) / (at.q & 1 ? at.sin : at.cos);
  return x == 0 ? x : result;
}

// The same for float; pi/2 is taken off in parts of few bits, so that products are exact.
struct FloatQuadrant {
  float sin, cos;
  uint32_t q;
};
EDGEWISE_INLINE bool needs_slow_angle(float x) { return !(std::abs(x) < 8192.0f); }
EDGEWISE_INLINE FloatQuadrant sin_cos(float x) {
  const float shifted = x * 0.636619772f + kRoundFloat;
  const float n = shifted - kRoundFloat;
  const float r = ((x - n * 0x1.92p+0f) - n * 0x1.fb4p-12f) - n * 0x1.4442d2p-24f;
  const float z = r * r;
  const float s = polynomial(z, {-0.166666647f, 0.00833273724f, -0.000195853253f});
  const float c = polynomial(z, {0.0416666456f, -0.00138882901f, 2.45452777e-05f});
  return {r + r * z * s, 1.0f - (0.5f * z - z * z * c), std::bit_cast<uint32_t>(shifted)};
}
EDGEWISE_INLINE float with_sign_bit(float x, uint32_t bit) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(x) ^ (bit << 31));
}
EDGEWISE_INLINE float sin(float x) {
  const FloatQuadrant at = sin_cos(x);
  const float result = with_sign_bit(at.q & 1 ? at.cos : at.sin, (at.q >> 1) & 1);
  return x == 0 ? x : result;
}
EDGEWISE_INLINE float cos(float x) {
  const FloatQuadrant at = sin_cos(x);
  return with_sign_bit(at.q & 1 ? at.sin : at.cos, ((at.q + 1) >> 1) & 1);
}
EDGEWISE_INLINE float tan(float x) {
  const FloatQuadrant at = sin_cos(x);
  const float result = (at.q & 1 ? -at.cos : at.sin) / (at.q & 1 ? at.sin : at.cos);
  return x == 0 ? x : result;
}

// The angle of (x, y). Sums of very large arguments would overflow.
EDGEWISE_INLINE bool needs_slow_atan2(double y, double x) {
  return !(std::abs(x) < 1e300) || !(std::abs(y) < 1e300);
}
EDGEWISE_INLINE double atan2(double y, double x) {
  const double a = std::abs(y), b = std::abs(x);
  // Turned by a quarter or an eighth of a circle, so that the ratio is below tan(pi/8).
  const bool quarter = a > 2.414213562373095 * b, eighth = a > 0.41421356237309503 * b;
  const double top = quarter ? -b : eighth ? a - b : a;
  const double bottom = quarter ? a : eighth ? a + b : b;
  const double t = top / (bottom == 0 ? 1.0 : bottom), z = t * t;
  const double p = polynomial(
      z, {-0.3333333333333333, 0.1999999999999548, -0.14285714284657894, 0.11111111014561013,
          -0.09090904549884611, 0.07692182535116648, -0.06664502215671447, 0.058580687568615106,
          -0.05085030492810941, 0.03921955253255129, -0.019162068915902573});
  const double turn = quarter ? 1.5707963267948966 : eighth ? 0.78539816339744828 : 0.0;
  const double low = quarter ? 6.123233995736766e-17 : eighth ? 3.061616997868383e-17 : 0.0;
  double angle = turn + (t + (low + t * z * p));
  angle = std::copysign(1.0, x) < 0 ? 3.1415926535897931 - (angle - 1.2246467991473532e-16) : angle;
  return std::copysign(angle, y);
}
EDGEWISE_INLINE double atan(double x) {
  const double result = atan2(x, 1.0);
  return std::abs(x) > 1e300 ? std::copysign(1.5707963267948966, x) : result;
}
EDGEWISE_INLINE float atan(float x) {
  const float a = std::abs(x);
  const bool quarter = a > 2.41421356f, eighth = a > 0.414213562f;
  const float top = quarter ? -1.0f : eighth ? a - 1.0f : a;
  const float bottom = quarter ? a : eighth ? a + 1.0f : 1.0f;
  const float t = top / bottom, z = t * t;
  const float p =
      polynomial(z, {-0.333333318f, 0.199995557f, -0.142644178f, 0.107480866f, -0.0646463659f});
  const float turn = quarter ? 1.57079633f : eighth ? 0.785398163f : 0.0f;
  return std::copysign(turn + (t + t * z * p), x);
}
EDGEWISE_INLINE double asin(double x) { return atan2(x, std::sqrt((1.0 - x) * (1.0 + x))); }
EDGEWISE_INLINE double acos(double x) { return atan2(std::sqrt((1.0 - x) * (1.0 + x)), x); }

// The arcsine of the root of z, which is `root`, up to 1/2.
EDGEWISE_INLINE float asin_of_root(float z, float root) {
  return root + root * z *
                    polynomial(z, {0.166666731f, 0.0749875605f, 0.045021050f, 0.0264289565f,
                                   0.0383360833f});
}
EDGEWISE_INLINE float asin(float x) {
  // Beyond 1/2 by the half angle of the rest of the quarter circle.
  const float a = std::abs(x);
  const bool far = a > 0.5f;
  const float z = far ? (1.0f - a) * 0.5f : a * a;
  const float part = asin_of_root(z, far ? std::sqrt(z) : a);
  return std::copysign(far ? 1.57079633f - 2.0f * part : part, x);
}
EDGEWISE_INLINE float acos(float x) {
  const float a = std::abs(x);
  const bool far = a > 0.5f;
  const float z = far ? (1.0f - a) * 0.5f : a * a;
  const float part = std::copysign(asin_of_root(z, far ? std::sqrt(z) : a), x);
  const float away = 2.0f * part;
  return far ? (x < 0 ? 3.14159274f + away : away) : 1.57079633f - part;
}

EDGEWISE_INLINE double sinh(double x) {
  const double e = expm1(std::abs(x));
  return std::copysign(0.5 * (e + e / (e + 1.0)), x);
}
EDGEWISE_INLINE double cosh(double x) {
  const double e = exp(std::abs(x));
  return 0.5 * e + 0.5 / e;
}
EDGEWISE_INLINE bool needs_slow_hyperbolic(double x) { return std::abs(x) > 700.0; }
EDGEWISE_INLINE double tanh(double x) {
  double a = std::abs(x);
  a = a > 22.0 ? 22.0 : a;
  const double e = expm1(2.0 * a);
  return std::copysign(e / (e + 2.0), x);
}
EDGEWISE_INLINE float tanh(float x) {
  float a = std::abs(x);
  a = a > 10.0f ? 10.0f : a;
  const float e = expm1(2.0f * a);
  return std::copysign(e / (e + 2.0f), x);
}
EDGEWISE_INLINE double asinh(double x) {
  const double a = std::abs(x);
  return std::copysign(log1p(a + a * a / (1.0 + std::sqrt(1.0 + a * a))), x);
}
EDGEWISE_INLINE double acosh(double x) {
  const double t = x - 1.0;
  const double result = log1p(t + std::sqrt(t * (t + 2.0)));
  return x >= 1.0 ? result : std::numeric_limits<double>::quiet_NaN();
}
EDGEWISE_INLINE bool needs_slow_square(double x) { return std::abs(x) > 1e150; }
EDGEWISE_INLINE double atanh(double x) {
  const double a = std::abs(x);
  return std::copysign(0.5 * log1p(2.0 * a / (1.0 - a)), x);
}

// e^x as a product whose first factor is no subnormal number.
template <typename C>
struct PowerOfE {
  C part, rest;
};
EDGEWISE_INLINE PowerOfE<double> power_of_e(double x) {
  const ExpParts parts = exp_parts(x);
  return {(1.0 + parts.tail) * parts.half, parts.rest};
}
EDGEWISE_INLINE PowerOfE<float> power_of_e(float x) {
  const FloatExpParts parts = exp_parts(x);
  return {(1.0f + parts.tail) * parts.first, parts.rest};
}

// 1 / (1 + e^-x), and that times x: from the power that does not overflow.
template <typename C>
EDGEWISE_INLINE C sigmoid(C x) {
  const C e = exp(-std::abs(x));
  return (x < 0 ? e : C(1)) / (C(1) + e);
}
template <typename C>
EDGEWISE_INLINE C silu(C x) {
  const PowerOfE<C> power = power_of_e(-std::abs(x));
  const C e = power.part * power.rest;
  // A subnormal power would lose bits before it is multiplied; minus infinity times 0 is NaN.
  const C part = x < C(sizeof(C) == 4 ? -120 : -780) ? C(0) : power.part;
  const C numerator = x < 0 ? x * part : x;
  return numerator / (C(1) + e) * (x < 0 ? power.rest : C(1));
}

// x^2 and what it lost in rounding: powers of e of large squares need it.
template <typename C>
struct Square {
  C high, low;
};
template <typename C>
EDGEWISE_INLINE Square<C> square(C x) {
  const C high = x * x;
#if HWY_NATIVE_FMA
  if constexpr (std::is_same_v<C, float>)
    return {high, __builtin_fmaf(x, x, -high)};
  else
    return {high, __builtin_fma(x, x, -high)};
#else
  // In halves of the bits, products of which are exact.
  using Bits = std::conditional_t<sizeof(C) == 4, uint32_t, uint64_t>;
  constexpr Bits upper = ~Bits(0) << (sizeof(C) == 4 ? 12 : 27);
  const C top = std::bit_cast<C>(std::bit_cast<Bits>(x) & upper), rest = x - top;
  return {high, ((top * top - high) + C(2) * top * rest) + rest * rest};
#endif
}
// e^-s. Infinity has lost nothing.
template <typename C>
EDGEWISE_INLINE C exp_minus(const Square<C>& s) {
  const C e = exp(-s.high);
  return e - (e == 0 ? C(0) : e * s.low);
}

// erfc(a) for a >= 0.5: e^(-a^2) t G(t).
EDGEWISE_INLINE double erfc_tail(double a, const Square<double>& s) {
  const double t = 1.0 / (1.0 + 0.5 * a);
  const double g = polynomial(
      t, {0.28209479165730583, 0.28209480120417774, 0.24683259870411492, 0.1763167737503393,
          0.08363609571014144, -0.003241887075161226, -0.06585025378280238, 0.0004869400974752788,
          -0.24976901604200108, 0.9186592968192936, -2.3219684200209794, 4.973192676869218,
          -7.930867835901536, 8.888339253553166, -6.913014938969031, 3.6617530788834016,
          -1.257246355534186, 0.24989396457328644, -0.02134149764831544});
  return exp_minus(s) * t * g;
}
EDGEWISE_INLINE double erfc_tail(double a) { return erfc_tail(a, square(a)); }
EDGEWISE_INLINE double erf_near_zero(double x) {
  return x * polynomial(x * x, {1.1283791670955126, -0.3761263890318375, 0.11283791670954868,
                                -0.026866170644999358, 0.005223977622008845, -0.0008548326509718547,
                                0.00012055286128871108, -1.4923000283850108e-05,
                                1.6371164552892836e-06, -1.4620256114391553e-07});
}
EDGEWISE_INLINE double erf(double x) {
  const double a = std::abs(x);
  const double far = std::copysign(1.0 - erfc_tail(a), x);
  return a < 0.5 ? erf_near_zero(x) : far;
}
EDGEWISE_INLINE double erfc(double x) {
  const double a = std::abs(x), tail = erfc_tail(a);
  const double far = x < 0 ? 2.0 - tail : tail;
  return a < 0.5 ? 1.0 - erf_near_zero(x) : far;
}
EDGEWISE_INLINE float erf_near_zero(float x) {
  return x * polynomial(x * x,
                        {1.1283791670823784f, -0.3761263852490886f, 0.1128377398554103f,
                         -0.026863139500114524f, 0.005200395582199738f, -0.0007694212093517468f});
}
EDGEWISE_INLINE float erfc_tail(float a, const Square<float>& s) {
  const float t = 1.0f / (1.0f + 0.5f * a);
  const float g =
      polynomial(t, {0.28208215926502067f, 0.2824549615156878f, 0.24249424963694713f,
                     0.2051893471683424f, -0.032689158426767125f, 0.2869995421047058f,
                     -0.49505824517711994f, 0.2883698044099562f, -0.05984270284716197f});
  return exp_minus(s) * t * g;
}
EDGEWISE_INLINE float erf(float x) {
  const float a = std::abs(x);
  // From 4 on it is 1, and powers of e below it would become subnormal.
  const float within = a > 4.0f ? 4.0f : a;
  const float far = std::copysign(1.0f - erfc_tail(within, {within * within, 0.0f}), x);
  return a < 0.5f ? erf_near_zero(x) : far;
}

EDGEWISE_INLINE float erfc(float x) {
  const float a = std::abs(x), tail = erfc_tail(a, square(a));
  const float far = x < 0 ? 2.0f - tail : tail;
  return a < 0.5f ? 1.0f - erf_near_zero(x) : far;
}

// x erfc(-x / sqrt(2)) / 2: no difference of equals where x is negative.
template <typename C>
EDGEWISE_INLINE C gelu(C x) {
  const C scaled = x * C(0.70710678118654752440), a = std::abs(scaled);
  const Square<C> s = square(x);
  const C tail = erfc_tail(a, {C(0.5) * s.high, C(0.5) * s.low});
  const C far = x < 0 ? tail : C(2) - tail;
  return C(0.5) * x * (a < C(0.5) ? C(1) + erf_near_zero(scaled) : far);
}

// For operands that were float: the logarithm has bits to spare.
EDGEWISE_INLINE bool needs_slow_power(double x, double y) {
  return !(std::abs(x) <= std::numeric_limits<double>::max()) ||
         !(std::abs(y) <= std::numeric_limits<double>::max());
}
EDGEWISE_INLINE double power(double x, double y) {
  const double size = exp(y * log(std::abs(x)));
  // Whole numbers from 2^53 on are even; 2^52 added to smaller ones shows their last bit.
  const double b = std::abs(y);
  const double bounded = b < 0x1p52 ? b : 0.0;
  const double shifted = bounded + 0x1p52;
  const bool whole = shifted - 0x1p52 == bounded;
  const bool odd = whole && (std::bit_cast<uint64_t>(shifted) & 1) != 0;
  const bool negative = std::bit_cast<int64_t>(x) < 0;
  double result = negative && odd ? -size : size;
  result = x < 0 && !whole ? std::numeric_limits<double>::quiet_NaN() : result;
  return y == 0 ? 1.0 : result;
}

// a - trunc(a / b) b, which doubles hold exactly where a and b were float and the quotient
// is below 2^28.
EDGEWISE_INLINE bool needs_slow_fmod(double a, double b) {
  return !(std::abs(a) < 0x1p28 * std::abs(b)) || std::isinf(b);
}
EDGEWISE_INLINE double fmod(double a, double b) {
  const double divisor = std::abs(b), value = std::abs(a);
  double rest = value - std::trunc(value / divisor) * divisor;
  rest = rest < 0 ? rest + divisor : rest;  // the quotient was rounded up to a whole number
  return std::copysign(rest, a);
}

// The same of any doubles whose quotient is below 2^52: the product is subtracted before it is
// rounded, and the difference is a double. Where that takes a call, all are left to the library.
#if HWY_NATIVE_FMA
EDGEWISE_INLINE bool needs_slow_exact_fmod(double a, double b) {
  return !(std::abs(a) < 0x1p52 * std::abs(b)) || std::isinf(b);
}
EDGEWISE_INLINE double exact_fmod(double a, double b) {
  const double divisor = std::abs(b), value = std::abs(a);
  const double quotient = std::trunc(value / divisor);
  double rest = __builtin_fma(-quotient, divisor, value);
  rest = rest < 0 ? rest + divisor : rest;
  return std::copysign(rest, a);
}
#else
EDGEWISE_INLINE bool needs_slow_exact_fmod(double, double b) { return b == 0; }
EDGEWISE_INLINE double exact_fmod(double a, double b) { return std::fmod(a, b); }
#endif

}  // namespace math
}  // namespace HWY_NAMESPACE
}  // namespace edgewise
