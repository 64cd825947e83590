// The bytes of a payload, taken apart. The layout stands in schema/xnnpack_graph.fbs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "edgewise/status.h"
#include "xnnpack_graph_generated.h"

namespace edgewise::xnnpack {

struct Payload {
  const fb::XNNGraph* graph = nullptr;
  std::span<const std::byte> constants;
  bool has_header = false;  // without one, constants lie in the flatbuffer
  // Holds the flatbuffer if it had to be moved to aligned memory.
  std::shared_ptr<const void> owner;
};

// Checks the header, the identifier and the whole flatbuffer. What the fields mean is not
// checked here.
Result<Payload> open_payload(std::span<const std::byte> bytes);

}  // namespace edgewise::xnnpack
