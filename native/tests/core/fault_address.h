// What a system says of a page that is gone.
#pragma once

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>

namespace edgewise::test {

inline void* named_address = nullptr;
inline void* missing_page = nullptr;

// Whether SIGBUS names the address that was read, without which nobody can tell whose page is
// gone. qemu-arm 7.2 names one in the page behind it.
inline bool has_fault_addresses() {
  static const bool has = [] {
    FILE* file = std::tmpfile();
    if (file == nullptr) return false;
    std::fputs("x", file);
    std::fflush(file);
    const auto size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    missing_page = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fileno(file), 0);
    if (ftruncate(fileno(file), 0) != 0) return false;
    struct sigaction own = {};
    own.sa_flags = SA_SIGINFO;
    own.sa_sigaction = [](int, siginfo_t* info, void*) {
      named_address = info->si_addr;
      mmap(missing_page, static_cast<size_t>(sysconf(_SC_PAGESIZE)), PROT_READ,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    };
    struct sigaction before = {};
    sigaction(SIGBUS, &own, &before);
    static_cast<void>(*(static_cast<volatile const char*>(missing_page) + 3));
    sigaction(SIGBUS, &before, nullptr);
    munmap(missing_page, size);
    std::fclose(file);
    return named_address == static_cast<char*>(missing_page) + 3;
  }();
  return has;
}

}  // namespace edgewise::test
