#include "platform/mapped_file.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "core/checked.h"
#include "edgewise/tensor.h"
#include "platform/windows/api.h"

namespace edgewise::platform {

namespace {

size_t page_size() {
  SYSTEM_INFO info{};
  GetSystemInfo(&info);
  return info.dwPageSize;
}

// The file's pages, if what is readable behind its end fits into the last one; else a copy.
class Mapping : public MappedFile {
 public:
  Mapping(std::string name, const FileIdentity& identity, size_t size, size_t reserved)
      : name_(std::move(name)), identity_(identity), size_(size), reserved_(reserved) {}
  ~Mapping() override {
    if (view_ != nullptr) UnmapViewOfFile(view_);
    if (copy_ != nullptr) VirtualFree(copy_, 0, MEM_RELEASE);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  bool map(HANDLE file) {
    const windows::Handle section(CreateFileMappingW(file, nullptr, PAGE_READONLY, 0, 0, nullptr));
    if (!section.is_open()) return false;
    view_ = MapViewOfFile(section.get(), FILE_MAP_READ, 0, 0, 0);
    return view_ != nullptr;
  }

  bool copy(HANDLE file) {
    copy_ = VirtualAlloc(nullptr, reserved_, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
    if (copy_ == nullptr) return false;
    size_t done = 0;
    while (done < size_) {
      constexpr size_t kMost = size_t{1} << 30;
      DWORD count = 0;
      const auto wanted = static_cast<DWORD>(std::min(size_ - done, kMost));
      if (!ReadFile(file, static_cast<std::byte*>(copy_) + done, wanted, &count, nullptr)) {
        return false;
      }
      if (count == 0) {
        SetLastError(ERROR_HANDLE_EOF);
        return false;
      }
      done += count;
    }
    DWORD before = 0;
    return VirtualProtect(copy_, reserved_, PAGE_READONLY, &before) != 0;
  }

  std::span<const std::byte> bytes() const override {
    return {static_cast<const std::byte*>(view_ != nullptr ? view_ : copy_), size_};
  }
  const std::string& name() const override { return name_; }
  const FileIdentity& identity() const override { return identity_; }
  // Windows lets nobody cut short a file that is mapped.
  bool is_whole() const override { return true; }
  void release(std::span<const std::byte> part) const override {
    // Pages that are not locked leave the process's memory, which the call tells as an error.
    if (view_ != nullptr && !part.empty()) {
      static_cast<void>(VirtualUnlock(const_cast<std::byte*>(part.data()), part.size()));
    }
  }
  size_t reserved() const { return reserved_; }

 private:
  const std::string name_;
  const FileIdentity identity_;
  const size_t size_;
  const size_t reserved_;
  void* view_ = nullptr;
  void* copy_ = nullptr;
};

// The mappings of this process.
struct Known {
  std::mutex mutex;
  std::map<FileIdentity, std::weak_ptr<const Mapping>> mappings;
};

Known& known() {
  static auto& instance = *new Known;  // programs may live until the process ends
  return instance;
}

int64_t joined(DWORD high, DWORD low) {
  return static_cast<int64_t>(static_cast<uint64_t>(high) << 32 | low);
}

FileIdentity identity_of(const BY_HANDLE_FILE_INFORMATION& info) {
  return {int64_t{info.dwVolumeSerialNumber},
          joined(info.nFileIndexHigh, info.nFileIndexLow),
          joined(info.nFileSizeHigh, info.nFileSizeLow),
          int64_t{info.ftLastWriteTime.dwHighDateTime},
          int64_t{info.ftLastWriteTime.dwLowDateTime},
          int64_t{info.ftCreationTime.dwHighDateTime},
          int64_t{info.ftCreationTime.dwLowDateTime}};
}

}  // namespace

Result<std::shared_ptr<const MappedFile>> map_file(const std::string& path, size_t beyond) {
  const char* name = path.c_str();
  const windows::Handle file(CreateFileW(windows::wide(path).c_str(), GENERIC_READ,
                                         FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE,
                                         nullptr, OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, nullptr));
  if (!file.is_open()) {
    const DWORD reason = GetLastError();
    const bool missing = reason == ERROR_FILE_NOT_FOUND || reason == ERROR_PATH_NOT_FOUND;
    return error(missing ? Code::kNotFound : Code::kIo, "[load] '%s' cannot be opened: %s", name,
                 windows::describe(reason).c_str());
  }
  BY_HANDLE_FILE_INFORMATION info{};
  if (GetFileType(file.get()) != FILE_TYPE_DISK || !GetFileInformationByHandle(file.get(), &info)) {
    return error(Code::kIo, "[load] '%s' is not a regular file; try load_bytes", name);
  }
  const FileIdentity identity = identity_of(info);
  if (identity[2] <= 0) return error(Code::kInvalidProgram, "[load] '%s' is empty", name);
  const auto size = static_cast<size_t>(identity[2]);
  size_t readable = 0;
  size_t reserved = 0;
  if (!checked_add(size, std::max(beyond, kReadPadding), &readable) ||
      !align_up(readable, page_size(), &reserved)) {
    return error(Code::kOutOfMemory, "[load] '%s' is too large to map", name);
  }
  const std::lock_guard lock(known().mutex);
  const auto found = known().mappings.find(identity);
  if (found != known().mappings.end()) {
    const std::shared_ptr<const Mapping> mapping = found->second.lock();
    if (mapping != nullptr && mapping->reserved() >= reserved) {
      return std::shared_ptr<const MappedFile>(mapping);
    }
  }
  auto mapping = std::make_shared<Mapping>(path, identity, size, reserved);
  // The rest of the last page is zeros.
  const bool fits = readable <= (size + page_size() - 1) / page_size() * page_size();
  if (!(fits ? mapping->map(file.get()) : mapping->copy(file.get()))) {
    return error(Code::kIo, "[load] '%s' cannot be mapped: %s", name,
                 windows::describe(GetLastError()).c_str());
  }
  std::erase_if(known().mappings, [](const auto& entry) { return entry.second.expired(); });
  known().mappings[identity] = mapping;
  return std::shared_ptr<const MappedFile>(std::move(mapping));
}

}  // namespace edgewise::platform
