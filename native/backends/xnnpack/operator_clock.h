// When XNNPACK's operators start and end, to the nanosecond; its own profile is in whole
// microseconds, of which a small operator has none.
//
// Where XNNPACK is linked statically by a linker that can redirect calls, the function that runs an
// operator passes here; elsewhere no times arrive, and the profile must do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace edgewise::xnnpack {

struct OperatorTime {
  size_t node;  // of the subgraph
  int64_t begin, end;
};

// While it lives, operators that this thread runs add their times to `times`. One of a node's
// several operators follows the other, and they count as one.
class OperatorClock {
 public:
  explicit OperatorClock(std::vector<OperatorTime>* times);
  ~OperatorClock();
  OperatorClock(const OperatorClock&) = delete;
  OperatorClock& operator=(const OperatorClock&) = delete;
};

}  // namespace edgewise::xnnpack
