// Many threads at once over programs, methods, sessions and profiles: every result is what one
// thread computes. Built with EDGEWISE_SANITIZE=thread, it also finds races (`make
// sanitize-threads`).
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "edgewise/program.h"
#include "xnnpack/corpus.h"

namespace edgewise::test {
namespace {

constexpr int kThreads = 8;
constexpr int kRounds = 60;

std::shared_ptr<Program> load(const std::string& path) {
  auto program = Program::load_file(path, {.threads = 1});
  EXPECT_TRUE(program.ok()) << program.status().message();
  return program.ok() ? *program : nullptr;
}

Outputs run(Method& method, RunProfile* profile) {
  Outputs outputs;
  const Status status = run_with_ones(method, profile, outputs);
  EXPECT_TRUE(status.ok()) << status.message();
  return outputs;
}

// What the threads have in common: of each file a program, and a method for whose use they wait.
struct Shared {
  std::string path;
  std::shared_ptr<Program> program;
  std::shared_ptr<Session> session;
  std::unique_ptr<Method> method;
  std::mutex turn;
  Outputs expected;
};

TEST(Threads, GetWhatOneThreadComputes) {
  std::map<size_t, Shared> shared;
  for (const std::string& path : corpus_files()) {
    Shared& file = shared[shared.size()];
    file.path = path;
    file.program = load(path);
    file.session = file.program->new_session().value();
    auto method = file.program->load_method("forward", file.session);
    ASSERT_TRUE(method.ok()) << path << ": " << method.status().message();
    file.method = std::move(method.value());
    file.expected = run(*file.method, nullptr);
  }
  ASSERT_GT(shared.size(), 20U);

  std::atomic<int> wrong = 0;
  const auto work = [&](int number) {
    std::minstd_rand random(static_cast<unsigned>(number + 1));
    for (int round = 0; round < kRounds; ++round) {
      Shared& file = shared[random() % shared.size()];
      RunProfile profile;
      RunProfile* const profiled = random() % 2 ? &profile : nullptr;
      Outputs outputs;
      switch (random() % 4) {
        case 0: {  // the method that is everyone's
          const std::scoped_lock lock(file.turn);
          outputs = run(*file.method, profiled);
          break;
        }
        case 1: {  // another one of the same session
          const std::scoped_lock lock(file.turn);
          auto method = file.program->load_method("forward", file.session);
          outputs = run(*method.value(), profiled);
          break;
        }
        case 2: {  // one of the thread's own
          auto method = file.program->load_method("forward");
          outputs = run(*method.value(), profiled);
          break;
        }
        default: {  // a program that is loaded and goes again
          auto method = load(file.path)->load_method("forward");
          outputs = run(*method.value(), profiled);
        }
      }
      if (outputs != file.expected) ++wrong;
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace edgewise::test
