#define EDGEWISE_KERNELS float_kernels_avx512
#define EDGEWISE_KERNELS_NAME "avx512"
#define EDGEWISE_LANES 16
#define EDGEWISE_ROWS 14
#include "backends/xnnpack/executor/float_kernels_body.h"
