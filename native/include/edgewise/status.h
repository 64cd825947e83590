// Outcome of an operation: `Status` (ok, or a code with a message) and `Result<T>`
// (a value or a Status). The API throws no exceptions.
//
// Messages read "[where] rule; got X; try Y", so that the face on top (C++, the
// runner, Python) can show them as they are.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

// A format as printf's, and what it prints: numbers of arguments, from 1. MinGW means Microsoft's
// formats by printf, and has those of the standard, which C++ uses there, too.
#if defined(__MINGW32__)
#define EDGEWISE_FORMAT(format_index, first) \
  __attribute__((format(gnu_printf, format_index, first)))
#elif defined(__GNUC__)
#define EDGEWISE_FORMAT(format_index, first) __attribute__((format(printf, format_index, first)))
#else
#define EDGEWISE_FORMAT(format_index, first)
#endif

namespace edgewise {

enum class Code : uint8_t {
  kOk = 0,
  kInvalidProgram,   // the file breaks a rule of the format
  kInvalidArgument,  // the caller passed something that the program cannot take
  kNotFound,         // a method, operator, backend or file that does not exist
  kUnsupported,      // well formed, but not something this runtime does
  kOutOfMemory,
  kIo,
  kBackend,  // a delegate failed
  kInternal,
  kCancelled,  // the caller's own check asked for it
};

// The code's name as it is printed: "invalid program", "not found", ...
std::string_view to_string(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  static Status ok_status() { return {}; }

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

  // The same failure with `[where] ` put before its message.
  Status within(std::string_view where) const;

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}           // NOLINT: implicit by design
  Result(Status failure) : state_(std::move(failure)) {}  // NOLINT: implicit by design

  bool ok() const { return std::holds_alternative<T>(state_); }
  explicit operator bool() const { return ok(); }

  // Only when ok().
  T& value() & { return *std::get_if<T>(&state_); }
  const T& value() const& { return *std::get_if<T>(&state_); }
  T&& value() && { return std::move(*std::get_if<T>(&state_)); }
  T& operator*() { return value(); }
  const T& operator*() const { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  Status status() const {
    const Status* failure = std::get_if<Status>(&state_);
    return failure ? *failure : Status();
  }

 private:
  std::variant<T, Status> state_;
};

// printf-style construction of a failure.
Status error(Code code, const char* format, ...) EDGEWISE_FORMAT(2, 3);

}  // namespace edgewise

// Returns the failure of `expression` (a Status) to the caller.
#define EDGEWISE_RETURN_IF_ERROR(expression)             \
  do {                                                   \
    ::edgewise::Status edgewise_status_ = (expression);  \
    if (!edgewise_status_.ok()) return edgewise_status_; \
  } while (false)
