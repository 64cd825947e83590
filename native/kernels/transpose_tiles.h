// Transposes of square tiles in registers. `rows` and `columns` are multiples of kTransposedTile.
#pragma once

#include <cstdint>

namespace edgewise {

inline constexpr int64_t kTransposedTile = 16;

// to[r * to_step + c] = from[c * from_step + r] for r < rows and c < columns.
void transpose_tiles(const uint8_t* from, int64_t from_step, uint8_t* to, int64_t to_step,
                     int64_t rows, int64_t columns);
void transpose_tiles(const uint16_t* from, int64_t from_step, uint16_t* to, int64_t to_step,
                     int64_t rows, int64_t columns);
void transpose_tiles(const uint32_t* from, int64_t from_step, uint32_t* to, int64_t to_step,
                     int64_t rows, int64_t columns);
void transpose_tiles(const uint64_t* from, int64_t from_step, uint64_t* to, int64_t to_step,
                     int64_t rows, int64_t columns);

}  // namespace edgewise
