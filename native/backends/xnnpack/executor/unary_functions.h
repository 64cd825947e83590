// Functions of float32 that XNNPACK computes one number after the other (exp, sin and cos), or that
// its kernels are wrong about at the ends of the range (log, sqrt and 1 / sqrt).
#pragma once

#include <cstddef>
#include <cstdint>

namespace edgewise::xnnpack {

enum class UnaryFunction : uint8_t { kExp, kSin, kCos, kLog, kSqrt, kRsqrt };

// Within one unit in the last place of the exact results (1 / sqrt: one and a half), and as the
// standard library at NaN, infinities and zeros. `out` may be `in`.
void run_unary_function(UnaryFunction function, const float* in, float* out, size_t count);

}  // namespace edgewise::xnnpack
