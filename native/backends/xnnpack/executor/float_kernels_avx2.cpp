#define EDGEWISE_KERNELS float_kernels_avx2
#define EDGEWISE_KERNELS_NAME "avx2"
#define EDGEWISE_LANES 8
#define EDGEWISE_ROWS 6
#include "backends/xnnpack/executor/float_kernels_body.h"
