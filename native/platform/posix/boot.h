// What tells one start of the system from others.
#pragma once

#include <array>

namespace edgewise::platform {

// 36 characters and zeros behind them; "?" if the system does not tell.
using Boot = std::array<char, 40>;
Boot read_boot();

}  // namespace edgewise::platform
