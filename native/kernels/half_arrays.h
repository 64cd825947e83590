// Arrays of float16 and bfloat16, as bits, from and to float: rounded to nearest, ties to even.
#pragma once

#include <cstdint>

namespace edgewise {

void float16_to_floats(const uint16_t* source, int64_t count, float* target);
void bfloat16_to_floats(const uint16_t* source, int64_t count, float* target);
void floats_to_float16(const float* source, int64_t count, uint16_t* target);
void floats_to_bfloat16(const float* source, int64_t count, uint16_t* target);

}  // namespace edgewise
