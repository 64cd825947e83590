#include "edgewise/status.h"

#include <cstdarg>

#include "format.h"

namespace edgewise {

std::string_view to_string(Code code) {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kInvalidProgram:
      return "invalid program";
    case Code::kInvalidArgument:
      return "invalid argument";
    case Code::kNotFound:
      return "not found";
    case Code::kUnsupported:
      return "unsupported";
    case Code::kOutOfMemory:
      return "out of memory";
    case Code::kIo:
      return "input/output";
    case Code::kBackend:
      return "backend";
    case Code::kCancelled:
      return "cancelled";
    case Code::kInternal:
      return "internal";
  }
  return "unknown";
}

Status Status::within(std::string_view where) const {
  if (ok()) return *this;
  std::string message = "[";
  message.append(where).append("] ").append(message_);
  return {code_, std::move(message)};
}

Status error(Code code, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::string message = format_message(format, arguments);
  va_end(arguments);
  return {code, without_controls(message)};
}

}  // namespace edgewise
