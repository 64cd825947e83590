// A file that is open, and what tells it from others.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <ctime>

#include "platform/mapped_file.h"

namespace edgewise::platform {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// When it was written last, and when changed last: under POSIX's names or those of macOS.
template <typename Stat>
timespec written_at(const Stat& info) {
  if constexpr (requires { info.st_mtim; }) {
    return info.st_mtim;
  } else {
    return info.st_mtimespec;
  }
}
template <typename Stat>
timespec changed_at(const Stat& info) {
  if constexpr (requires { info.st_ctim; }) {
    return info.st_ctim;
  } else {
    return info.st_ctimespec;
  }
}

inline FileIdentity identity_of(const struct stat& info) {
  const timespec written = written_at(info), changed = changed_at(info);
  return {
      static_cast<int64_t>(info.st_dev), static_cast<int64_t>(info.st_ino), int64_t{info.st_size},
      int64_t{written.tv_sec},           int64_t{written.tv_nsec},          int64_t{changed.tv_sec},
      int64_t{changed.tv_nsec}};
}

}  // namespace edgewise::platform
