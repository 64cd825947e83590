#include "platform/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "core/checked.h"
#include "edgewise/tensor.h"
#include "platform/posix/cut_short.h"
#include "platform/posix/file_descriptor.h"

namespace edgewise::platform {

namespace {

class Pages {
 public:
  Pages(void* base, size_t size) : base_(base), size_(size) {}
  ~Pages() { munmap(base_, size_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  const void* base() const { return base_; }

 private:
  void* base_;
  size_t size_;
};

class Mapping : public MappedFile {
 public:
  // `reserved` bytes from `base` on, of which the file has `size`.
  Mapping(void* base, size_t size, size_t reserved, std::string name, const FileIdentity& identity)
      : size_(size),
        reserved_(reserved),
        pages_(base, reserved),
        guard_(base, reserved),
        name_(std::move(name)),
        identity_(identity) {}

  std::span<const std::byte> bytes() const override {
    return {static_cast<const std::byte*>(pages_.base()), size_};
  }
  const std::string& name() const override { return name_; }
  const FileIdentity& identity() const override { return identity_; }
  bool is_whole() const override { return guard_.is_whole(); }
  void release(std::span<const std::byte> part) const override {
    if (part.empty()) return;
    const auto base = reinterpret_cast<uintptr_t>(pages_.base());
    const auto first = reinterpret_cast<uintptr_t>(part.data());
    const uintptr_t last = first + part.size();
    if (first < base || last > base + size_) return;
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const uintptr_t start = (first + page - 1) / page * page;
    const uintptr_t end = last / page * page;
    if (start >= end) return;
    // Private and never written, so there is nothing to lose.
    static_cast<void>(madvise(reinterpret_cast<void*>(start), end - start, MADV_DONTNEED));
  }

  size_t reserved() const { return reserved_; }

  // The mappings of this process.
  static std::mutex& mutex() {
    static auto& instance = *new std::mutex;  // programs may live until the process ends
    return instance;
  }
  static std::map<FileIdentity, std::weak_ptr<const Mapping>>& all() {
    static auto& instance = *new std::map<FileIdentity, std::weak_ptr<const Mapping>>;
    return instance;
  }

 private:
  const size_t size_;
  const size_t reserved_;
  Pages pages_;
  CutShortGuard guard_;  // goes before the pages do
  const std::string name_;
  const FileIdentity identity_;
};

}  // namespace

Result<std::shared_ptr<const MappedFile>> map_file(const std::string& path, size_t beyond) {
  const char* name = path.c_str();
  // Not blocking: opening a pipe that nobody writes would wait for ever.
  const FileDescriptor file(open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) {
    const int reason = errno;
    return error(reason == ENOENT ? Code::kNotFound : Code::kIo, "[load] '%s' cannot be opened: %s",
                 name, std::strerror(reason));
  }
  struct stat info {};
  if (fstat(file.get(), &info) != 0) {
    return error(Code::kIo, "[load] '%s' cannot be read: %s", name, std::strerror(errno));
  }
  if (!S_ISREG(info.st_mode)) {
    return error(Code::kIo, "[load] '%s' is not a regular file; try load_bytes", name);
  }
  if (info.st_size <= 0) return error(Code::kInvalidProgram, "[load] '%s' is empty", name);

  const size_t size = static_cast<size_t>(info.st_size);
  const FileIdentity identity = identity_of(info);
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  size_t reserved = 0;
  if (!checked_add(size, std::max(beyond, kReadPadding), &reserved) ||
      !align_up(reserved, page, &reserved)) {
    return error(Code::kOutOfMemory, "[load] '%s' is too large to map", name);
  }
  const std::lock_guard lock(Mapping::mutex());
  const auto known = Mapping::all().find(identity);
  if (known != Mapping::all().end()) {
    const std::shared_ptr<const Mapping> mapping = known->second.lock();
    if (mapping != nullptr && mapping->is_whole() && mapping->reserved() >= reserved) {
      return std::shared_ptr<const MappedFile>(mapping);
    }
  }
  // The file goes over the head of an anonymous reservation, so that reading past its
  // last page finds zeros and not the next mapping, or nothing.
  void* base = mmap(nullptr, reserved, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                    /*fd=*/-1, 0);
  if (base == MAP_FAILED) {
    return error(Code::kOutOfMemory, "[load] no address space for the %zu bytes of '%s'", size,
                 name);
  }
  auto mapping = std::make_shared<const Mapping>(base, size, reserved, path, identity);
  if (mmap(base, size, PROT_READ, MAP_PRIVATE | MAP_FIXED, file.get(), 0) == MAP_FAILED) {
    return error(Code::kIo, "[load] '%s' cannot be mapped: %s", name, std::strerror(errno));
  }
  std::erase_if(Mapping::all(), [](const auto& entry) { return entry.second.expired(); });
  Mapping::all()[identity] = mapping;
  return std::shared_ptr<const MappedFile>(std::move(mapping));
}

}  // namespace edgewise::platform
