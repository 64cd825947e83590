// A file that is open, and what tells it from others.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

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

inline FileIdentity identity_of(const struct stat& info) {
  return {static_cast<int64_t>(info.st_dev),
          static_cast<int64_t>(info.st_ino),
          int64_t{info.st_size},
          int64_t{info.st_mtim.tv_sec},
          int64_t{info.st_mtim.tv_nsec},
          int64_t{info.st_ctim.tv_sec},
          int64_t{info.st_ctim.tv_nsec}};
}

}  // namespace edgewise::platform
