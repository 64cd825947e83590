#include "platform/log.h"

#include <cstdio>

namespace edgewise::platform {

void log(const char* message) { std::fprintf(stderr, "edgewise: %s\n", message); }

}  // namespace edgewise::platform
