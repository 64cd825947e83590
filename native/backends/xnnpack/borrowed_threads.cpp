#include "backends/xnnpack/borrowed_threads.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "backends/xnnpack/spin_wait.h"
#include "platform/process.h"

#if defined(PTHREADPOOL_FLAG_DONT_SPIN_WORKERS) && !defined(__EMSCRIPTEN__)
#define EDGEWISE_HAS_BORROWED_THREADS
#endif

namespace edgewise::xnnpack {

#ifdef EDGEWISE_HAS_BORROWED_THREADS

// A pool asks for a thread whenever a loop begins and one of its places has none. The thread stays
// until no loop follows for some microseconds, comes back, waits awake for as long as the spin-wait
// policy says, and sleeps.
class BorrowedThreads {
 public:
  ~BorrowedThreads() {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  // Those of this process.
  static std::shared_ptr<BorrowedThreads> get() {
    static auto& mutex = *new std::mutex;
    static auto& kept = *new std::weak_ptr<BorrowedThreads>;
    const std::lock_guard lock(mutex);
    std::shared_ptr<BorrowedThreads> threads = kept.lock();
    if (threads == nullptr || threads->is_of_parent()) {
      threads = {new BorrowedThreads, end};
      kept = threads;
    }
    return threads;
  }

  // At least so many. False if they cannot be started.
  bool grow(size_t count) {
    const std::lock_guard lock(mutex_);
    try {
      while (threads_.size() < count) threads_.emplace_back([this] { serve(); });
    } catch (const std::system_error&) {
      return false;
    }
    count_.store(static_cast<int>(threads_.size()), std::memory_order_relaxed);
    return true;
  }

  static pthreadpool_executor* executor() {
    static pthreadpool_executor functions = {
        [](void* self) {
          return static_cast<BorrowedThreads*>(self)->count_.load(std::memory_order_relaxed);
        },
        [](void* self, void* context, void (*run)(void*)) {
          static_cast<BorrowedThreads*>(self)->schedule({run, context});
        }};
    return &functions;
  }

 private:
  struct Task {
    void (*run)(void* context);
    void* context;
  };

  bool is_of_parent() const { return forks_ != platform::fork_count(); }

  static void end(BorrowedThreads* threads) {
    if (!threads->is_of_parent()) {
      delete threads;
      return;
    }
    // Nobody is there who could be told to end. What these threads waited for stays, too.
    static auto& of_parents = *new std::vector<BorrowedThreads*>;
    of_parents.push_back(threads);
  }

  void schedule(Task task) {
    bool is_asleep;
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(task);
      waiting_.store(tasks_.size(), std::memory_order_relaxed);
      is_asleep = asleep_ > 0;
    }
    if (is_asleep) wake_.notify_one();
  }

  bool take(Task* task) {
    if (waiting_.load(std::memory_order_relaxed) == 0) return false;
    const std::lock_guard lock(mutex_);
    return take_locked(task);
  }

  bool take_locked(Task* task) {
    if (tasks_.empty()) return false;
    *task = tasks_.front();
    tasks_.pop_front();
    waiting_.store(tasks_.size(), std::memory_order_relaxed);
    return true;
  }

  bool take_awake(Task* task) {
    SpinWait wait;
    while (!take(task)) {
      if (!wait.spin()) return false;
    }
    return true;
  }

  bool take_asleep(Task* task) {
    std::unique_lock lock(mutex_);
    ++asleep_;
    wake_.wait(lock, [this] { return is_over_ || !tasks_.empty(); });
    --asleep_;
    return take_locked(task);
  }

  void serve() {
    Task task;
    while (take_awake(&task) || take_asleep(&task)) task.run(task.context);
  }

  const unsigned forks_ = platform::fork_count();
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Task> tasks_;
  size_t asleep_ = 0;
  bool is_over_ = false;
  std::vector<std::thread> threads_;
  std::atomic<size_t> waiting_ = 0;  // tasks_.size(), for those who have not locked
  std::atomic<int> count_ = 0;       // threads_.size()
};

#else

class BorrowedThreads {};

#endif

bool ThreadPool::start(size_t threads) {
  forks_ = platform::fork_count();
#ifdef EDGEWISE_HAS_BORROWED_THREADS
  threads_ = BorrowedThreads::get();
  if (!threads_->grow(threads - 1)) return false;
  pool_ = pthreadpool_create_v2(BorrowedThreads::executor(), threads_.get(), threads);
#else
  pool_ = pthreadpool_create(threads);
#endif
  return pool_ != nullptr;
}

bool ThreadPool::is_of_parent() const {
  return pool_ != nullptr && forks_ != platform::fork_count();
}

ThreadPool::~ThreadPool() {
  // A forked child would wait for threads that it does not have.
  if (pool_ != nullptr && !is_of_parent()) pthreadpool_destroy(pool_);
}

}  // namespace edgewise::xnnpack
