// Spin-wait policy: how long idle threads of XNNPACK's pools spin before they sleep.
//
// A thread that sleeps takes some fifty microseconds to wake, and then misses the first operators
// of a call. A thread that waits awake takes time from others if the cores are busy. So between the
// loops of a call it soon goes to sleep, and after a call it waits a little for the next one.
#pragma once

#include <cstdint>

namespace edgewise::xnnpack {

// Of a delegate: lives as long as it runs.
class SpinWaitPolicy {
 public:
  SpinWaitPolicy();
  ~SpinWaitPolicy();
  SpinWaitPolicy(const SpinWaitPolicy&) = delete;
  SpinWaitPolicy& operator=(const SpinWaitPolicy&) = delete;
};

// Of a thread that waits.
class SpinWait {
 public:
  // Waits for a moment. False if it is time to sleep.
  bool spin();

 private:
  uint32_t spins_ = 0;
  uint32_t most_ = 0;
};

}  // namespace edgewise::xnnpack
