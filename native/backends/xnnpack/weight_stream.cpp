#include "backends/xnnpack/weight_stream.h"

namespace edgewise::xnnpack {
namespace {

thread_local bool streams_weights = false;
thread_local size_t answered = 0;

}  // namespace

WeightStream::WeightStream(size_t bytes) : before_(streams_weights) {
  streams_weights = before_ || bytes > kMostCached;
}
WeightStream::~WeightStream() { streams_weights = before_; }

size_t WeightStream::answers() { return answered; }

}  // namespace edgewise::xnnpack

extern "C" int edgewise_streams_weights() {
  if (!edgewise::xnnpack::streams_weights) return 0;
  ++edgewise::xnnpack::answered;
  return 1;
}
