// Products of floats with weights of 4, 8 or 16 bits: what the step that runs them asks of a CPU's
// kernels. Weights become floats on the way, so that they take no more memory than in the file.
#pragma once

#include <cstddef>
#include <cstdint>

namespace edgewise::xnnpack {

enum class WeightForm : uint8_t {
  kBytes,    // with a sign
  kNibbles,  // that stand for nibble - 8
  kHalves,   // float16
};

// FloatKernels::columns columns of weights, row by row; of nibbles two rows together, the first
// one's being the low ones. For each block of rows there is a scale of each column.
struct WeightOnlyPanel {
  WeightForm form = WeightForm::kBytes;
  size_t depth = 0;
  size_t block = 0;                   // rows that have the same scales: of nibbles an even number
  bool has_short_scales = false;      // bfloat16, else floats
  const std::byte* scales = nullptr;  // null: all are 1
  const std::byte* weights = nullptr;
};

// Some rows of floats times a panel.
struct WeightOnlyTile {
  size_t rows = 0;  // WeightOnlyKernels::kFewRows at most
  const float* a = nullptr;
  size_t a_stride = 0;
  size_t columns = 0;               // that are written
  const float* bias = nullptr;      // of the panel's columns
  const float* residual = nullptr;  // null: none; laid out as `c`
  float* c = nullptr;
  size_t c_stride = 0;
  float min = 0, max = 0;
};

struct WeightOnlyKernels {
  // Of more rows, it takes less time to write the panel's floats and multiply these.
  static constexpr size_t kFewRows = 4;

  // Weights of `count` rows from `first` on, even ones if they are nibbles, times their scales.
  void (*dequantize)(const WeightOnlyPanel& panel, size_t first, size_t count, float* to);
  void (*multiply)(const WeightOnlyPanel& panel, const WeightOnlyTile& tile);
};

}  // namespace edgewise::xnnpack
