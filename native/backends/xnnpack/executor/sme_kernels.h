// Products of matrices on Arm CPUs with SME2, whose unit for matrices adds the products of two
// vectors, each with each, in one instruction: Arm's KleidiAI, as the step that runs them asks for.
#pragma once

#include <cstddef>
#include <string>

#include "backends/xnnpack/executor/int8_kernels.h"
#include "backends/xnnpack/executor/parallel.h"
#include "backends/xnnpack/graph.h"

namespace edgewise::xnnpack {

// What is done to results.
struct SmeFinish {
  float min = 0, max = 0;
  Int8Range range;  // of 8-bit integers
};

// Rows of the left factor consist of segments, the same distance apart, of so many numbers.
struct SmeRow {
  const std::byte* in = nullptr;
  size_t segments = 1;
  size_t segment_bytes = 0;  // from one to the next
  size_t length = 0;         // of a segment

  const void* segment(size_t index) const { return in + index * segment_bytes; }
};

struct SmeKernels {
  std::string name;
  DataType type;  // of both factors
  size_t number_bytes;
  size_t bias_bytes;
  bool has_scales;  // behind a panel, of its columns
  size_t rows;      // of a tile, in which a left factor is packed
  size_t columns;   // of a panel of weights

  // Numbers of depth that lie together; a segment is filled up to a multiple.
  size_t step() const { return 4 / number_bytes; }
  size_t padded(size_t length) const { return round_up(length, step()); }
  // A panel: biases, then of each step of depth those of all columns, then the scales.
  size_t panel_bytes(size_t depth) const {
    return columns * (bias_bytes + depth * number_bytes + (has_scales ? sizeof(float) : 0));
  }

  // `pointers`: of a tile the rows' first segments, then their second ones and so on; then the next
  // tile's. Tiles get `segments` times padded(length) numbers of depth.
  void (*pack)(size_t rows, size_t segments, size_t length, const void* const* pointers,
               void* packed);
  // `columns` columns of a panel; `depth` counts what fills segments up.
  void (*multiply)(size_t rows, size_t columns, size_t depth, const void* packed, const void* panel,
                   void* out, size_t out_stride, const SmeFinish& finish);
  // Of floating point, for as they store, products make a bound of NaN: whether all numbers are
  // finite, and a row without SME.
  bool (*is_finite)(const void* numbers, size_t count);
  void (*multiply_row)(const SmeRow& row, const void* panel, size_t columns, void* out,
                       const SmeFinish& finish);
};

// sums[i] += added[i], within bounds; NaN stays.
void add_within(const float* added, size_t count, float min, float max, float* sums);

// Null if this CPU has no SME2, this build no KleidiAI, or it none for such numbers.
#ifdef EDGEWISE_HAS_KLEIDIAI
const SmeKernels* sme_kernels(DataType type);
#else
constexpr const SmeKernels* sme_kernels(DataType) { return nullptr; }
#endif

}  // namespace edgewise::xnnpack
