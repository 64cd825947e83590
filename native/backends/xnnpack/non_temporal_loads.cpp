#include "backends/xnnpack/non_temporal_loads.h"

namespace edgewise::xnnpack {
namespace {

thread_local bool loads_non_temporal = false;
thread_local size_t answered = 0;

}  // namespace

NonTemporalLoads::NonTemporalLoads(size_t bytes) : before_(loads_non_temporal) {
  loads_non_temporal = before_ || bytes > kMostCached;
}
NonTemporalLoads::~NonTemporalLoads() { loads_non_temporal = before_; }

size_t NonTemporalLoads::answers() { return answered; }

}  // namespace edgewise::xnnpack

extern "C" int edgewise_loads_non_temporal() {
  if (!edgewise::xnnpack::loads_non_temporal) return 0;
  ++edgewise::xnnpack::answered;
  return 1;
}
