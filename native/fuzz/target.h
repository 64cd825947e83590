// A kind of file that is fuzzed. One function for each target program, which libFuzzer calls with
// bytes of its own, and `replay` with those of files.
#pragma once

#include <cstddef>
#include <span>

namespace edgewise::fuzz {

// Reads the bytes and does with them what an application does. Whatever they are, it returns.
void run_one(std::span<const std::byte> bytes);

}  // namespace edgewise::fuzz
