#include "platform/whole_file.h"

#include <algorithm>

#include "platform/windows/api.h"

namespace edgewise::platform {

namespace {

bool write_all(HANDLE file, std::initializer_list<std::span<const std::byte>> parts) {
  for (std::span<const std::byte> part : parts) {
    while (!part.empty()) {
      constexpr size_t kMost = size_t{1} << 30;
      DWORD count = 0;
      const auto wanted = static_cast<DWORD>(std::min(part.size(), kMost));
      if (!WriteFile(file, part.data(), wanted, &count, nullptr)) return false;
      part = part.subspan(count);
    }
  }
  return true;
}

}  // namespace

Status write_whole(const std::string& path,
                   std::initializer_list<std::span<const std::byte>> parts) {
  const auto failed = [&path](DWORD reason) {
    return error(Code::kIo, "'%s' cannot be written: %s", path.c_str(),
                 windows::describe(reason).c_str());
  };
  const std::wstring target = windows::wide(path);
  // A device, such as NUL.
  {
    const windows::Handle there(CreateFileW(target.c_str(), GENERIC_WRITE, FILE_SHARE_READ, nullptr,
                                            OPEN_EXISTING, 0, nullptr));
    if (there.is_open() && GetFileType(there.get()) != FILE_TYPE_DISK) {
      return write_all(there.get(), parts) ? Status::ok_status() : failed(GetLastError());
    }
    if (!there.is_open() && GetLastError() != ERROR_FILE_NOT_FOUND) return failed(GetLastError());
  }
  const size_t slash = target.find_last_of(L"/\\");
  const std::wstring folder = slash == std::wstring::npos ? L"." : target.substr(0, slash + 1);
  wchar_t beside[MAX_PATH + 1];
  if (GetTempFileNameW(folder.c_str(), L"edg", 0, beside) == 0) return failed(GetLastError());
  DWORD reason = ERROR_SUCCESS;
  {
    const windows::Handle file(
        CreateFileW(beside, GENERIC_WRITE, 0, nullptr, TRUNCATE_EXISTING, 0, nullptr));
    if (!file.is_open() || !write_all(file.get(), parts) || !FlushFileBuffers(file.get())) {
      reason = GetLastError();
    }
  }
  if (reason == ERROR_SUCCESS &&
      !MoveFileExW(beside, target.c_str(), MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH)) {
    reason = GetLastError();
  }
  if (reason == ERROR_SUCCESS) return Status::ok_status();
  DeleteFileW(beside);
  return failed(reason);
}

}  // namespace edgewise::platform
