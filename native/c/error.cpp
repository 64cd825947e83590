#include "c/error.h"

#include <string>

namespace edgewise::c {
namespace {

constexpr const char* kOutOfMemoryText = "[edgewise] there is no memory left";

struct LastError {
  std::string text;
  const char* shown = "";
};

LastError& last_error() {
  thread_local LastError instance;
  return instance;
}

static_assert(EDGEWISE_INVALID_PROGRAM == static_cast<int>(Code::kInvalidProgram));
static_assert(EDGEWISE_OUT_OF_MEMORY == static_cast<int>(Code::kOutOfMemory));
static_assert(EDGEWISE_INTERNAL == static_cast<int>(Code::kInternal));
static_assert(EDGEWISE_CANCELLED == static_cast<int>(Code::kCancelled));

}  // namespace

edgewise_code report_out_of_memory() noexcept {
  last_error().shown = kOutOfMemoryText;
  return EDGEWISE_OUT_OF_MEMORY;
}

edgewise_code report(const Status& status) noexcept {
  if (status.ok()) return EDGEWISE_OK;
  try {
    LastError& last = last_error();
    last.text = status.message();
    last.shown = last.text.c_str();
  } catch (...) {
    return report_out_of_memory();
  }
  return static_cast<edgewise_code>(status.code());
}

edgewise_code report_null(const char* function, const char* name) noexcept {
  return guarded([&] {
    return error(Code::kInvalidArgument, "[%s] `%s` must point to something; got null", function,
                 name);
  });
}

}  // namespace edgewise::c

extern "C" {

const char* edgewise_last_error(void) { return edgewise::c::last_error().shown; }

const char* edgewise_code_name(edgewise_code code) {
  return edgewise::to_string(static_cast<edgewise::Code>(code)).data();
}

}  // extern "C"
