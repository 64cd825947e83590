// Threads of the process that the pools of all its programs borrow. A pool that had its own would
// have them idle while another one works.
#pragma once

#include <cstddef>
#include <memory>

#include "pthreadpool.h"

namespace edgewise::xnnpack {

class BorrowedThreads;

// A pool of XNNPACK's with the threads that serve it. A version of pthreadpool that cannot borrow
// any starts its own.
class ThreadPool {
 public:
  ThreadPool() = default;
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // `threads`: with the one that calls. False if there is no memory, or no thread can be started.
  bool start(size_t threads);
  pthreadpool_t get() const { return pool_; }
  // Whether its threads are those of the process that this one was forked from.
  bool is_of_parent() const;

 private:
  pthreadpool_t pool_ = nullptr;
  std::shared_ptr<BorrowedThreads> threads_;
  unsigned forks_ = 0;  // before it was started
};

}  // namespace edgewise::xnnpack
