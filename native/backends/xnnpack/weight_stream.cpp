#include "backends/xnnpack/weight_stream.h"

namespace edgewise::xnnpack {
namespace {

// Less may be in the last cache when it is read the next time.
constexpr size_t kMostCached = size_t{64} << 20;

thread_local bool streams_weights = false;

}  // namespace

WeightStream::WeightStream(size_t bytes) { streams_weights = bytes > kMostCached; }
WeightStream::~WeightStream() { streams_weights = false; }

}  // namespace edgewise::xnnpack

extern "C" int edgewise_streams_weights() { return edgewise::xnnpack::streams_weights; }
