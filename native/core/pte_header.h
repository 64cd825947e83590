// What stands before and around the flatbuffer of a `.pte` file; see schema/program.fbs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "edgewise/status.h"

namespace edgewise {

struct PteHeader {
  std::span<const std::byte> flatbuffer;  // with the extended header inside
  std::span<const std::byte> segments;    // from the segment base on; may be empty
};

// Checks identifier and extended header against the size of the file.
Result<PteHeader> read_pte_header(std::span<const std::byte> file);

}  // namespace edgewise
