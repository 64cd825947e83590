#include "platform/posix/cut_short.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>

#include "platform/posix/bus_error.h"

namespace edgewise::platform {

// Read by the handler, which may not wait for a lock. Ranges stay in the list for ever, and are
// used again: there are as many as there were ever mappings at once.
struct CutShortGuard::Range {
  std::atomic<uintptr_t> begin = 0;  // 0: free
  std::atomic<uintptr_t> end = 0;
  std::atomic<bool> lost = false;
  Range* next = nullptr;

  static inline std::atomic<Range*> first = nullptr;
  static inline uintptr_t page = 0;
  static inline struct sigaction before = {};

  // Below here: under the lock.
  static std::mutex& mutex() {
    static auto& instance = *new std::mutex;  // programs may live until the process ends
    return instance;
  }
  static inline size_t used = 0;
  static inline bool is_installed = false;

  static bool replace(uintptr_t address);
  static void handle(int signal, siginfo_t* info, void* context);
  static bool is_own(const struct sigaction& action);
  static void install();
  static void uninstall();
};

// Zeros from the page of `address` to its range's end. What follows a page that is gone is gone,
// too.
bool CutShortGuard::Range::replace(uintptr_t address) {
  for (Range* range = first; range != nullptr; range = range->next) {
    const uintptr_t begin = range->begin;
    const uintptr_t end = range->end;
    // Read again: another thread may be giving a free range to a mapping of its own.
    if (begin == 0 || address < begin || address >= end || range->begin != begin) continue;
    range->lost = true;
    const uintptr_t start = address / page * page;
    return mmap(reinterpret_cast<void*>(start), end - start, PROT_READ,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, /*fd=*/-1, 0) != MAP_FAILED;
  }
  return false;
}

void CutShortGuard::Range::handle(int signal, siginfo_t* info, void* context) {
  const int kept = errno;
  const bool is_ours =
      is_missing_page(*info, context) && replace(reinterpret_cast<uintptr_t>(info->si_addr));
  errno = kept;
  if (is_ours) return;
  const bool was_sent = is_sent(*info);
  if ((before.sa_flags & SA_SIGINFO) != 0) {
    before.sa_sigaction(signal, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(signal);
  } else if (before.sa_handler == SIG_DFL || !was_sent) {
    // The default ends the process: now if it was sent, else when the access is tried again.
    struct sigaction ending = {};
    ending.sa_handler = SIG_DFL;
    sigaction(signal, &ending, nullptr);
    if (was_sent) raise(signal);
  }
}

bool CutShortGuard::Range::is_own(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == &handle;
}

void CutShortGuard::Range::install() {
  struct sigaction current = {};
  if (is_installed || sigaction(SIGBUS, nullptr, &current) != 0) return;
  is_installed = true;
  if (is_own(current)) return;  // somebody put it back
  page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  before = current;
  // With its mask, and whether calls start again.
  current.sa_flags = (current.sa_flags & ~static_cast<int>(SA_RESETHAND)) | SA_SIGINFO | SA_ONSTACK;
  current.sa_sigaction = &handle;
  is_installed = sigaction(SIGBUS, &current, nullptr) == 0;
}

// Another handler that was installed since then may call ours: then it stays.
void CutShortGuard::Range::uninstall() {
  struct sigaction current = {};
  if (!is_installed || sigaction(SIGBUS, nullptr, &current) != 0 || !is_own(current)) return;
  is_installed = sigaction(SIGBUS, &before, nullptr) != 0;
}

CutShortGuard::CutShortGuard(const void* base, size_t size) {
  const std::lock_guard lock(Range::mutex());
  Range* range = Range::first;
  while (range != nullptr && range->begin != 0) range = range->next;
  if (range == nullptr) {
    range = new Range;
    range->next = Range::first;
    Range::first = range;
  }
  range->lost = false;
  range->end = reinterpret_cast<uintptr_t>(base) + size;
  range->begin = reinterpret_cast<uintptr_t>(base);
  range_ = range;
  ++Range::used;
  Range::install();
}

CutShortGuard::~CutShortGuard() {
  const std::lock_guard lock(Range::mutex());
  range_->begin = 0;
  if (--Range::used == 0) Range::uninstall();
}

bool CutShortGuard::is_whole() const { return !range_->lost; }

}  // namespace edgewise::platform
