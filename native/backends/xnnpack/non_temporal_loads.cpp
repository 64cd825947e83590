#include "backends/xnnpack/non_temporal_loads.h"

namespace edgewise::xnnpack {
namespace {

thread_local bool loads_non_temporal = false;

}  // namespace

NonTemporalLoads::NonTemporalLoads(size_t bytes) : before_(loads_non_temporal) {
  loads_non_temporal = before_ || bytes > kMostCached;
}
NonTemporalLoads::~NonTemporalLoads() { loads_non_temporal = before_; }

bool NonTemporalLoads::are_on() { return loads_non_temporal; }

}  // namespace edgewise::xnnpack
