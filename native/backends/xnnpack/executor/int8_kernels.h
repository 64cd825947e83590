// Matrix products of 8-bit integers, where these are faster than XNNPACK's.
#pragma once

#include <cstddef>
#include <cstdint>

namespace edgewise::xnnpack {

inline constexpr size_t kInt8Columns = 16;  // of a panel
inline constexpr size_t kInt8Step = 4;      // products that are added at a time

struct Int8Tile {
  size_t rows = 0;   // any number but 0
  size_t depth = 0;  // of a segment: a multiple of kInt8Step
  // The parts of which a row of `a` consists, one after the other in the panel.
  size_t segments = 1;
  size_t segment_stride = 0;
  const int8_t* a = nullptr;
  size_t a_stride = 0;
  // Step by step, of each column kInt8Step weights.
  const int8_t* panel = nullptr;
  const int32_t* bias = nullptr;  // of all columns of the panel, as `scales`
  const float* scales = nullptr;  // from a sum to steps of the result
  size_t columns = 0;             // that are written
  int8_t* c = nullptr;
  size_t c_stride = 0;
};

// Of the results. Rounded to the nearest, halves to even, as XNNPACK does.
struct Int8Range {
  int16_t zero_point = 0;
  int8_t min = INT8_MIN;
  int8_t max = INT8_MAX;
};

struct Int8Kernels {
  const char* name;
  size_t rows;  // of a tile
  void (*multiply)(const Int8Tile& tile, const Int8Range& range);
};

// Null where XNNPACK's are faster: on CPUs without dot products, on those with products of 8-bit
// matrices, and on those that run in order.
#ifdef __aarch64__
const Int8Kernels* int8_kernels();
#else
constexpr const Int8Kernels* int8_kernels() { return nullptr; }
#endif

}  // namespace edgewise::xnnpack
