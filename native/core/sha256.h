// SHA-256 (FIPS 180-4).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace edgewise {

using Digest = std::array<uint8_t, 32>;

// With the CPU's instructions for it where it has them (x86-64), else about ten times slower.
// `release`, if any, is told of every part when it was read.
Digest sha256(std::span<const std::byte> bytes,
              const std::function<void(std::span<const std::byte>)>& release = {});

// For tests: without these instructions.
Digest sha256_portable(std::span<const std::byte> bytes);

// Lower case.
std::string to_hex(std::span<const uint8_t> bytes);

}  // namespace edgewise
