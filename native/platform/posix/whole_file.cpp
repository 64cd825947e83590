#include "platform/whole_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "platform/posix/sync_file.h"

namespace edgewise::platform {

namespace {

bool write_all(int file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = write(file, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
  return true;
}

bool write_and_close(int file, std::initializer_list<std::span<const std::byte>> parts) {
  bool written = true;
  for (const std::span<const std::byte> part : parts) written = written && write_all(file, part);
  // Pipes and terminals have no disk.
  written = written && (sync_file(file) == 0 || errno == EINVAL || errno == ENOTSUP);
  const int cause = errno;
  const bool closed = close(file) == 0;
  if (!written) errno = cause;
  return written && closed;
}

}  // namespace

Status write_whole(const std::string& path,
                   std::initializer_list<std::span<const std::byte>> parts) {
  const auto failed = [&path] {
    return error(Code::kIo, "'%s' cannot be written: %s", path.c_str(), std::strerror(errno));
  };
  struct stat there {};
  const bool exists = stat(path.c_str(), &there) == 0;
  if (exists && !S_ISREG(there.st_mode)) {
    const int file = open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (file < 0 || !write_and_close(file, parts)) return failed();
    return Status::ok_status();
  }
  std::string target = path;
  if (exists) {
    // Links stay, and what they lead to is replaced.
    char* const real = realpath(path.c_str(), nullptr);
    if (real == nullptr) return failed();
    target = real;
    std::free(real);
    if (access(target.c_str(), W_OK) != 0) return failed();
  }
  // A name of its own: the target's may be as long as names can be.
  std::string beside = target.substr(0, target.rfind('/') + 1) + ".edgewise.XXXXXX";
  const int file = mkstemp(beside.data());
  if (file < 0) return failed();
  // mkstemp's are its owner's alone; files get what the process gives others.
  mode_t mode = there.st_mode & 07777;
  if (!exists) {
    const mode_t mask = umask(0);
    umask(mask);
    mode = 0666 & ~mask;
  }
  (void)fchmod(file, mode);
  if (!write_and_close(file, parts) || std::rename(beside.c_str(), target.c_str()) != 0) {
    const int cause = errno;
    unlink(beside.c_str());
    errno = cause;
    return failed();
  }
  return Status::ok_status();
}

}  // namespace edgewise::platform
