#include "backends/xnnpack/operator_clock.h"

#include "edgewise/profile.h"
#include "xnnpack.h"

namespace edgewise::xnnpack {
namespace {

thread_local std::vector<OperatorTime>* running_times = nullptr;

}  // namespace

OperatorClock::OperatorClock(std::vector<OperatorTime>* times) { running_times = times; }
OperatorClock::~OperatorClock() { running_times = nullptr; }

}  // namespace edgewise::xnnpack

#if defined(EDGEWISE_WRAPS_OPERATORS)
// Not in XNNPACK's public header; weak, as another version may not have it.
extern "C" __attribute__((weak)) xnn_status __real_xnn_run_operator_with_index(
    void* op, size_t node, size_t part, pthreadpool_t threadpool);

extern "C" xnn_status __wrap_xnn_run_operator_with_index(void* op, size_t node, size_t part,
                                                         pthreadpool_t threadpool) {
  using edgewise::xnnpack::running_times;
  std::vector<edgewise::xnnpack::OperatorTime>* times = running_times;
  if (times == nullptr) [[likely]] {
    return __real_xnn_run_operator_with_index(op, node, part, threadpool);
  }
  const int64_t begin = edgewise::profile_clock();
  const xnn_status status = __real_xnn_run_operator_with_index(op, node, part, threadpool);
  const int64_t end = edgewise::profile_clock();
  if (!times->empty() && times->back().node == node) {
    times->back().end = end;
  } else {
    times->push_back({node, begin, end});
  }
  return status;
}
#endif
