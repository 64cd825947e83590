// GEMM and GEMV of rows that are quantized at run time with 4-bit weights in blocks, where these
// are faster than XNNPACK's.
//
// A weight is w = scale of its block * (nibble - 8), a row x = scale * (q - zero point).
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/xnnpack/graph.h"

namespace edgewise::xnnpack {

inline constexpr size_t kQb4Columns = 32;  // of a panel
// Weights of a column that a word of 32 bits holds.
inline constexpr size_t kQb4Word = 8;

// x = scale * (q - zero_point), q from -128 to 127.
struct Qb4Row {
  float scale = 0;
  int32_t zero_point = 0;
};

struct Qb4Tile {
  size_t rows = 0;             // any number but 0
  size_t depth = 0;            // a multiple of `block`
  size_t block = 0;            // a multiple of kQb4Word
  const uint8_t* a = nullptr;  // what `quantize` wrote, row by row
  const Qb4Row* row = nullptr;
  const std::byte* panel = nullptr;
  size_t columns = 0;  // that are written
  float* c = nullptr;
  size_t c_stride = 0;
  float min = 0;
  float max = 0;
  bool is_cached = true;  // the weights; if not, they are prefetched past the caches
};

struct Qb4Kernels {
  const char* name;
  // A row as 8-bit integers, as PyTorch quantizes it: `to` gets q + 128, in the order in which
  // `multiply` reads it. `count` is a multiple of kQb4Word.
  void (*quantize)(const float* from, size_t count, uint8_t* to, Qb4Row* row);
  void (*multiply)(const Qb4Tile& tile);
};

// A panel: of each column the sum of its weights, times 16, and the bias; then block by block the
// weights, a word of each column after the other, and the scales.
size_t qb4_panel_bytes(size_t depth, size_t block);
// Column `first` of the filter [N, depth] and those behind it, filled up with zeros. `bias` may be
// null.
void pack_qb4_panel(const GraphValue& filter, const float* bias, size_t first, std::byte* panel);

// Null where XNNPACK's are used. On Windows GCC does not align what it spills of 512 bits (its bug
// 54412).
#if defined(__x86_64__) && !defined(_WIN32)
#define EDGEWISE_HAS_QB4_KERNELS
const Qb4Kernels* qb4_kernels();
#else
constexpr const Qb4Kernels* qb4_kernels() { return nullptr; }
#endif

}  // namespace edgewise::xnnpack
