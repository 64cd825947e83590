// A file that is cut short while it is mapped, and whose handler of SIGBUS is whose.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "fault_address.h"
#include "test_program.h"

namespace edgewise::test {
namespace {

class CutShort : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_fault_addresses()) GTEST_SKIP() << "this system names another address";
    char name[] = "/tmp/edgewise_cut_short_XXXXXX";
    const int file = mkstemp(name);
    ASSERT_GE(file, 0);
    path_ = name;
    const Bytes bytes = make_file(add_file());
    ASSERT_EQ(write(file, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    close(file);
  }
  void TearDown() override { unlink(path_.c_str()); }

  std::unique_ptr<Method> load_method(Verification verification) {
    auto program = Program::load_file(path_, {.verification = verification});
    EXPECT_TRUE(program.ok()) << program.status().message();
    auto method = (*program)->load_method("forward");
    EXPECT_TRUE(method.ok()) << method.status().message();
    return std::move(*method);
  }
  void cut() { ASSERT_EQ(truncate(path_.c_str(), 0), 0); }

  std::string path_;
};

Status run(Method& method) {
  std::vector<float> x(4, 1.0F);
  EDGEWISE_RETURN_IF_ERROR(method.set_input(0, over(x, ScalarType::kFloat, {4})));
  return method.execute();
}

struct sigaction current_action() {
  struct sigaction action = {};
  sigaction(SIGBUS, nullptr, &action);
  return action;
}

TEST_F(CutShort, IsAnErrorOfTheCall) {
  auto method = load_method(Verification::kInternalConsistency);
  ASSERT_TRUE(run(*method).ok());
  cut();
  for (int i = 0; i < 2; ++i) {
    const Status status = run(*method);
    EXPECT_EQ(status.code(), Code::kIo);
    EXPECT_NE(status.message().find(path_), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("cut short"), std::string::npos) << status.message();
  }
  EXPECT_EQ(method->reset().code(), Code::kIo);
}

TEST_F(CutShort, IsNotSeenInACopy) {
  auto method = load_method(Verification::kFull);
  cut();
  EXPECT_TRUE(run(*method).ok());
}

int calls = 0;
void* fault_page = nullptr;

// As an application's own handler that makes the access work.
void plain_handler(int) {
  ++calls;
  mmap(fault_page, static_cast<size_t>(sysconf(_SC_PAGESIZE)), PROT_READ,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}
void full_handler(int number, siginfo_t*, void*) { plain_handler(number); }

TEST_F(CutShort, LeavesOtherFaultsToTheHandlerBefore) {
  for (const bool with_info : {false, true}) {
    SetUp();
    struct sigaction own = {};
    if (with_info) {
      own.sa_sigaction = full_handler;
      own.sa_flags = SA_SIGINFO;
    } else {
      own.sa_handler = plain_handler;
    }
    struct sigaction before = {};
    sigaction(SIGBUS, &own, &before);
    auto method = load_method(Verification::kInternalConsistency);

    FILE* other = std::tmpfile();
    std::fputs("x", other);
    std::fflush(other);
    fault_page = mmap(nullptr, 1, PROT_READ, MAP_PRIVATE, fileno(other), 0);
    ASSERT_EQ(ftruncate(fileno(other), 0), 0);
    calls = 0;
    EXPECT_EQ(*static_cast<volatile const char*>(fault_page), 0);
    EXPECT_EQ(calls, 1);
    munmap(fault_page, 1);
    std::fclose(other);

    cut();
    EXPECT_EQ(run(*method).code(), Code::kIo);
    EXPECT_EQ(calls, 1) << "the fault was the runtime's";

    method.reset();  // the last program
    const struct sigaction after = current_action();
    EXPECT_EQ(after.sa_flags & SA_SIGINFO, with_info ? SA_SIGINFO : 0);
    EXPECT_TRUE(with_info ? after.sa_sigaction == full_handler : after.sa_handler == plain_handler);
    sigaction(SIGBUS, &before, nullptr);
    TearDown();
  }
}

TEST_F(CutShort, StaysBelowALaterHandler) {
  const struct sigaction before = current_action();  // a sanitizer's, or none
  auto method = load_method(Verification::kInternalConsistency);
  const struct sigaction ours = current_action();
  struct sigaction own = {};
  own.sa_handler = plain_handler;
  sigaction(SIGBUS, &own, nullptr);
  method.reset();
  EXPECT_TRUE(current_action().sa_handler == plain_handler);
  // Whoever installed it puts back what was there; then a program is loaded again.
  sigaction(SIGBUS, &ours, nullptr);
  method = load_method(Verification::kInternalConsistency);
  cut();
  EXPECT_EQ(run(*method).code(), Code::kIo);
  method.reset();
  EXPECT_TRUE(current_action().sa_sigaction == before.sa_sigaction);
}

}  // namespace
}  // namespace edgewise::test
