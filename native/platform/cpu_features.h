// Instructions that the compiler may not assume and that Highway does not tell of.
#pragma once

namespace edgewise::platform {

// Of 64-bit Arm: products of four pairs of int8 at once, of 2x8 by 8x2 matrices of them, and outer
// products of long vectors (FEAT_SME2). False on other CPUs, and where the system does not tell.
bool has_dot_products();
bool has_int8_matrix_products();
bool has_sme2();

}  // namespace edgewise::platform
