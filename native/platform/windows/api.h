// The Windows API without what clashes with C++, and names and messages in UTF-8.
#pragma once

#ifndef NOMINMAX
#define NOMINMAX
#endif
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#include <windows.h>

#include <string>

namespace edgewise::platform::windows {

// Of UTF-8; what is not UTF-8 becomes U+FFFD.
std::wstring wide(const std::string& text);
// Of an error's number: the system's words in one line.
std::string describe(DWORD code);

class Handle {
 public:
  explicit Handle(HANDLE handle) : handle_(handle) {}
  ~Handle() {
    if (is_open()) CloseHandle(handle_);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  bool is_open() const { return handle_ != nullptr && handle_ != INVALID_HANDLE_VALUE; }
  HANDLE get() const { return handle_; }

 private:
  HANDLE handle_;
};

}  // namespace edgewise::platform::windows
