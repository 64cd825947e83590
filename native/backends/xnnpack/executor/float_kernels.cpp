#include "backends/xnnpack/executor/float_kernels.h"

namespace edgewise::xnnpack {

extern const FloatKernels float_kernels_vector128;  // SSE2, NEON
#if defined(__x86_64__)
extern const FloatKernels float_kernels_avx2;
extern const FloatKernels float_kernels_avx512;
#endif

namespace {

struct Found {
  const FloatKernels* tables[3] = {};
  size_t count = 0;

  Found() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) tables[count++] = &float_kernels_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
      tables[count++] = &float_kernels_avx2;
    }
#endif
    tables[count++] = &float_kernels_vector128;
  }
};

const Found& found() {
  static const Found instance;
  return instance;
}

}  // namespace

const FloatKernels* const* all_float_kernels(size_t* count) {
  *count = found().count;
  return found().tables;
}

const FloatKernels* float_kernels() {
#if defined(__x86_64__)
  // Without fused multiplication and addition nothing is gained.
  return found().count > 1 ? found().tables[0] : nullptr;
#else
  return found().tables[0];
#endif
}

}  // namespace edgewise::xnnpack
