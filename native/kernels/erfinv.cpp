// The inverse of the error function.
#include <cmath>
#include <limits>
#include <numbers>

#include "cpu_dispatch.h"
#include "elementwise.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

// In double, from Winitzki's approximation (relative error below 0.002) by Halley's iteration,
// which triples the digits. Near 1 it goes by erfc of the rest, so that nothing cancels.
struct Erfinv {
  static constexpr ResultRule kRule = ResultRule::kFloating;
  static constexpr bool kFloatingOnly = true;
  static constexpr bool kInDouble = true;
  template <typename C>
  C operator()(C argument) const {
    const double x = argument, size = std::abs(x);
    if (!(size < 1)) {
      const double limit = size == 1 ? std::numeric_limits<double>::infinity()
                                     : std::numeric_limits<double>::quiet_NaN();
      return static_cast<C>(std::copysign(limit, x));
    }
    constexpr double kA = 0.147;
    const double rest = 1 - size;
    const double log = size < 0.5 ? std::log1p(-size * size) : std::log(rest * (1 + size));
    const double half = 2 / (std::numbers::pi * kA) + log / 2;
    double y = std::sqrt(std::sqrt(half * half - log / kA) - half);
    for (int step = 0; step < 3; ++step) {
      const double off = size < 0.5 ? std::erf(y) - size : rest - std::erfc(y);
      const double u = off * std::exp(y * y) / (2 * std::numbers::inv_sqrtpi);
      y -= u / (1 + y * u);
    }
    return static_cast<C>(std::copysign(y, x));
  }
};

constexpr KernelEntry kKernels[] = {
    {"aten::erfinv.out", 2, unary<Erfinv>},
};
const KernelTable table(kEveryLevel, kSelected<kKernels>);

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace edgewise
