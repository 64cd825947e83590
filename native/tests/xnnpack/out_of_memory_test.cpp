// Memory that is not to be had: of all that loading, setting up and running ask for, the n-th
// request fails, for each n. Every call ends in a status, and what was loaded can be used after it.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <new>

#include "xnnpack/corpus.h"

namespace {

// Requests until the one that fails; negative: none does.
std::atomic<long> countdown{-1};
bool fails() { return countdown.load() >= 0 && countdown.fetch_sub(1) == 0; }

}  // namespace

// What the linker calls instead of the C library's (see CMakeLists.txt), and C++'s own.
extern "C" {
void* __real_malloc(size_t size);
void* __real_calloc(size_t count, size_t size);
void* __real_realloc(void* data, size_t size);
void* __real_aligned_alloc(size_t alignment, size_t size);
int __real_posix_memalign(void** data, size_t alignment, size_t size);
void* __real_memalign(size_t alignment, size_t size);
void* __real_mmap(void* at, size_t size, int protection, int flags, int file, off_t offset);

void* __wrap_malloc(size_t size) { return fails() ? nullptr : __real_malloc(size); }
void* __wrap_calloc(size_t count, size_t size) {
  return fails() ? nullptr : __real_calloc(count, size);
}
void* __wrap_realloc(void* data, size_t size) {
  return fails() ? nullptr : __real_realloc(data, size);
}
void* __wrap_aligned_alloc(size_t alignment, size_t size) {
  return fails() ? nullptr : __real_aligned_alloc(alignment, size);
}
int __wrap_posix_memalign(void** data, size_t alignment, size_t size) {
  return fails() ? ENOMEM : __real_posix_memalign(data, alignment, size);
}
void* __wrap_memalign(size_t alignment, size_t size) {
  return fails() ? nullptr : __real_memalign(alignment, size);
}
void* __wrap_mmap(void* at, size_t size, int protection, int flags, int file, off_t offset) {
  if (!fails()) return __real_mmap(at, size, protection, flags, file, offset);
  errno = ENOMEM;
  return MAP_FAILED;
}
}

void* operator new(size_t size) {
  void* const data = fails() ? nullptr : __real_malloc(size == 0 ? 1 : size);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}
void* operator new[](size_t size) { return operator new(size); }
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return fails() ? nullptr : __real_malloc(size == 0 ? 1 : size);
}
void* operator new[](size_t size, const std::nothrow_t& tag) noexcept {
  return operator new(size, tag);
}
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
void operator delete(void* data) noexcept { std::free(data); }
void operator delete[](void* data) noexcept { std::free(data); }
void operator delete(void* data, size_t) noexcept { std::free(data); }
void operator delete[](void* data, size_t) noexcept { std::free(data); }

// XNNPACK itself leaves what it had made when it cannot make the rest.
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:xnn_\nleak:^create_\n"; }

namespace edgewise::test {
namespace {

constexpr long kEvery = 150;  // of the first requests each fails, of later ones some

class OutOfMemory : public ::testing::TestWithParam<std::string> {};

// Calls `step` with its first request failing, then its second and so on, until none fails. After
// each, `check` tells whether all works.
template <typename Step, typename Check>
void fail_each(const char* what, const Step& step, const Check& check) {
  size_t refused = 0;
  for (long n = 0;; n += n < kEvery ? 1 : 13) {
    countdown = n;
    const Status status = step();
    const bool reached = countdown.exchange(-1) < 0;
    if (!status.ok()) {
      ++refused;
      EXPECT_FALSE(status.message().empty()) << what << " without request " << n;
      EXPECT_TRUE(status.code() == Code::kOutOfMemory || status.code() == Code::kBackend ||
                  status.code() == Code::kIo)
          << what << " without request " << n << ": " << status.message();
    }
    ASSERT_TRUE(check()) << what << " without request " << n;
    if (!reached) break;
  }
  EXPECT_GT(refused, 0U) << what;
}

TEST_P(OutOfMemory, IsAnError) {
  Outputs expected, outputs;
  const auto whole = Program::load_file(GetParam(), {.threads = 1}).value();
  const auto method = whole->load_method("forward").value();
  ASSERT_TRUE(run_with_ones(*method, nullptr, expected).ok());

  fail_each(
      "loading", [] { return Program::load_file(GetParam(), {.threads = 1}).status(); },
      [] { return true; });
  fail_each(
      "setting up", [&] { return whole->load_method("forward").status(); },
      [&] {
        const auto other = whole->load_method("forward");
        return other.ok() && run_with_ones(**other, nullptr, outputs).ok() && outputs == expected;
      });
  fail_each(
      "running",
      [&] {
        // What the test itself asks for may be what fails.
        try {
          return run_with_ones(*method, nullptr, outputs);
        } catch (const std::bad_alloc&) {
          return Status(Code::kOutOfMemory, "of the test");
        }
      },
      [&] { return run_with_ones(*method, nullptr, outputs).ok() && outputs == expected; });
}

INSTANTIATE_TEST_SUITE_P(Corpus, OutOfMemory, ::testing::ValuesIn(corpus_files()),
                         [](const auto& test) {
                           return std::filesystem::path(test.param).stem().string();
                         });

}  // namespace
}  // namespace edgewise::test
