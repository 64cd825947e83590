/* What main.cpp wants of a board. */
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

void board_print(const char* text);
void board_exit(int code);
size_t board_stack_used(void); /* bytes, at most so far */

#ifdef __cplusplus
}
#endif
