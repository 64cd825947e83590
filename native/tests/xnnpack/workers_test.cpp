// The backend's threads as kernels of the runtime use them.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "backends/xnnpack/program_state.h"
#include "edgewise/backend.h"
#if __has_include(<sys/wait.h>)
#include <sys/wait.h>
#include <unistd.h>
#endif

namespace edgewise::xnnpack {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

std::shared_ptr<Workers> ask(int threads, std::shared_ptr<BackendProgramState>* state) {
  DelegateInit init;
  init.threads = threads;
  init.program_state = state;
  return find_backend("XnnpackBackend")->workers(init);
}

TEST(XnnpackWorkers, AreNoneForOneThread) {
  std::shared_ptr<BackendProgramState> state;
  EXPECT_EQ(ask(1, &state), nullptr);
}

TEST(XnnpackWorkers, AreTheThreadsOfDelegates) {
  std::shared_ptr<BackendProgramState> state;
  const auto workers = ask(2, &state);
  ASSERT_NE(workers, nullptr);
  EXPECT_EQ(static_cast<ProgramState*>(state.get()), workers.get());
  EXPECT_NE(static_cast<ProgramState*>(state.get())->threadpool(), nullptr);
  EXPECT_EQ(ask(2, &state), workers);
}

TEST(XnnpackWorkers, RunALoopAtOnce) {
  std::shared_ptr<BackendProgramState> state;
  const auto workers = ask(2, &state);
  ASSERT_NE(workers, nullptr);
  std::atomic<int> begun = 0, met = 0;
  auto task = [&](size_t) {
    ++begun;
    const auto end = steady_clock::now() + std::chrono::seconds(30);
    while (begun < 2 && steady_clock::now() < end) std::this_thread::yield();
    if (begun == 2) ++met;
  };
  for_each(workers.get(), 2, task);
  EXPECT_EQ(met, 2);
}

#if __has_include(<sys/wait.h>)
TEST(XnnpackWorkers, StayInTheProcessThatWasForked) {
  std::shared_ptr<BackendProgramState> state;
  const auto workers = ask(2, &state);
  ASSERT_NE(workers, nullptr);
  std::atomic<int> done = 0;
  auto task = [&](size_t) {
    std::this_thread::sleep_for(milliseconds(1));
    ++done;
  };
  for (int i = 0; i < 2; ++i) for_each(workers.get(), 8, task);
  ASSERT_EQ(done, 16);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    for_each(workers.get(), 8, task);
    _exit(done == 24 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}
#endif

}  // namespace
}  // namespace edgewise::xnnpack
