/* For programs without an operating system, see docs/microcontrollers.md.
 *
 * edgewise::firmware (CMake) takes all memory from one array of the firmware's, in place of a heap.
 * Leave it out where the firmware has operator new of its own. */
#ifndef EDGEWISE_FIRMWARE_H_
#define EDGEWISE_FIRMWARE_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The firmware defines these for edgewise::firmware; aligned to 8 bytes. */
extern unsigned char edgewise_memory[];
extern const size_t edgewise_memory_bytes;

/* Bytes of it in use now; up to where it was ever in use; how often something was taken. */
size_t edgewise_memory_used(void);
size_t edgewise_memory_peak(void);
size_t edgewise_memory_calls(void);

/* The firmware may define these. Called with what did not fit, before the program stops; with what
 * went wrong before main(); for profiles, which have no times else. */
void edgewise_out_of_memory(size_t bytes);
void edgewise_log(const char* message);
int64_t edgewise_clock_nanoseconds(void);

#ifdef __cplusplus
}
#endif

#endif /* EDGEWISE_FIRMWARE_H_ */
