// How long the threads of XNNPACK's pools stay awake without work.
//
// A thread that sleeps takes some fifty microseconds to wake, and then misses the first operators
// of a call. A thread that waits awake takes time from others if the cores are busy. So between the
// loops of a call it soon goes to sleep, and after a call it waits a little for the next one.
#pragma once

namespace edgewise::xnnpack {

// Of a delegate: lives as long as it runs.
class BusyPool {
 public:
  BusyPool();
  ~BusyPool();
  BusyPool(const BusyPool&) = delete;
  BusyPool& operator=(const BusyPool&) = delete;
};

}  // namespace edgewise::xnnpack
