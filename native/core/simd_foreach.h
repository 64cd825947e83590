// Compiles the file that includes it, HWY_TARGET_INCLUDE, once more for each further target.
#pragma once

#include "core/simd_targets.h"
// Needs the list of targets.
#include "hwy/foreach_target.h"
