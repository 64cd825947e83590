#define EDGEWISE_KERNELS float_kernels_vector128
#define EDGEWISE_KERNELS_NAME "vector128"
#define EDGEWISE_LANES 4
#define EDGEWISE_ROWS 6
#include "backends/xnnpack/executor/float_kernels_body.h"
