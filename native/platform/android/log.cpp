#include "platform/log.h"

#include <android/log.h>

namespace edgewise::platform {

// Nobody reads an app's standard error.
void log(const char* message) { __android_log_write(ANDROID_LOG_WARN, "edgewise", message); }

}  // namespace edgewise::platform
