// Included before Highway in files that are compiled for several CPUs: which of its targets they
// are. A target more makes every such file larger.
//
//   SSE2, SSE4, AVX2, AVX3  x86-64; AVX3 is AVX-512 with F, BW, CD, DQ and VL
//   NEON_WITHOUT_AES        Arm; the one with AES differs in nothing that is used here
//
// Not SVE: tiles of registers are arrays of vectors, and vectors without a size have no arrays.
// CPUs with it have as many lanes of NEON in sum (Neoverse V1: four of 4 for two of 8), but A64FX.
//
// EDGEWISE_TARGETS_WITHOUT: those that a file leaves out, since the next lower ones do as well.
#pragma once

#ifndef EDGEWISE_TARGETS_WITHOUT
#define EDGEWISE_TARGETS_WITHOUT 0
#endif

#define HWY_DISABLED_TARGETS                                                                    \
  (~(HWY_SSE2 | HWY_SSE4 | HWY_AVX2 | HWY_AVX3 | HWY_NEON_WITHOUT_AES | HWY_WASM | HWY_EMU128 | \
     HWY_SCALAR) |                                                                              \
   (EDGEWISE_TARGETS_WITHOUT))
