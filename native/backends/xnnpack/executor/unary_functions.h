// exp, sin and cos of float32, which XNNPACK computes one number after the other.
#pragma once

#include <cstddef>
#include <cstdint>

namespace edgewise::xnnpack {

enum class UnaryFunction : uint8_t { kExp, kSin, kCos };

// Within one unit in the last place of the exact results, and as the standard library at NaN,
// infinities and zeros. `out` may be `in`.
void run_unary_function(UnaryFunction function, const float* in, float* out, size_t count);

}  // namespace edgewise::xnnpack
