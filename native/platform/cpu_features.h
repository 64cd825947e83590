// Instructions that the compiler may not assume and that Highway does not tell of.
#pragma once

namespace edgewise::platform {

// Of 64-bit Arm: products of four pairs of int8 at once, and of 2x8 by 8x2 matrices of them. False
// on other CPUs, and where the system does not tell.
bool has_dot_products();
bool has_int8_matrix_products();

}  // namespace edgewise::platform
