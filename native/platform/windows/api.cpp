#include "platform/windows/api.h"

namespace edgewise::platform::windows {

std::wstring wide(const std::string& text) {
  const int size = static_cast<int>(text.size());
  const int length = MultiByteToWideChar(CP_UTF8, 0, text.data(), size, nullptr, 0);
  std::wstring result(static_cast<size_t>(length), L'\0');
  MultiByteToWideChar(CP_UTF8, 0, text.data(), size, result.data(), length);
  return result;
}

std::string describe(DWORD code) {
  wchar_t text[512];
  const DWORD length =
      FormatMessageW(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS, nullptr, code, 0,
                     text, sizeof(text) / sizeof(*text), nullptr);
  char narrow[2048];
  int size = WideCharToMultiByte(CP_UTF8, 0, text, static_cast<int>(length), narrow, sizeof(narrow),
                                 nullptr, nullptr);
  while (size > 0 && (narrow[size - 1] == '\n' || narrow[size - 1] == '\r')) --size;
  if (size <= 0) return "error " + std::to_string(code);
  return {narrow, static_cast<size_t>(size)};
}

}  // namespace edgewise::platform::windows
