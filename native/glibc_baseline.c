/* What headers of a new glibc make programs call and an old one lacks; see
 * cmake/glibc_baseline.cmake. */
#include <features.h>

#if __GLIBC_PREREQ(2, 32)
/* libstdc++'s headers look at it to count references without atomics; 0 is always right. */
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;
#endif

#if __GLIBC_PREREQ(2, 33)
struct stat;
int __fxstat(int version, int descriptor, struct stat* result);

/* Before 2.33 it was inline: a call of __fxstat with the version of struct stat. */
__attribute__((visibility("hidden"))) int fstat(int descriptor, struct stat* result) {
#if defined(__x86_64__)
  return __fxstat(1, descriptor, result);
#else
  return __fxstat(0, descriptor, result);
#endif
}
#endif
