// Where what nobody can be told otherwise goes: standard error, Android's log, or the firmware's
// edgewise_log().
#pragma once

namespace edgewise::platform {

void log(const char* message);

}  // namespace edgewise::platform
