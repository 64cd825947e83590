// Weights of 4 bits, in blocks or columns, and of 8 bits: Arm's KleidiAI, on CPUs with dot products
// of bytes, and with products of matrices of bytes.
#include "backends/xnnpack/executor/row_gemm_kernels.h"

#ifdef EDGEWISE_HAS_KLEIDIAI

#include <arm_neon.h>

#include <cstring>

#include "backends/xnnpack/executor/parallel.h"
#include "core/cpu_level.h"
#include "hwy/base.h"
#include "kai/ukernels/matmul/matmul_clamp_f32_qai8dxp_qsi4c32p/kai_matmul_clamp_f32_qai8dxp1x4_qsi4c32p8x4_1x8_neon_dotprod.h"
#include "kai/ukernels/matmul/matmul_clamp_f32_qai8dxp_qsi4c32p/kai_matmul_clamp_f32_qai8dxp1x8_qsi4c32p8x8_1x8x32_neon_dotprod.h"
#include "kai/ukernels/matmul/matmul_clamp_f32_qai8dxp_qsi4c32p/kai_matmul_clamp_f32_qai8dxp4x4_qsi4c32p8x4_4x8_neon_dotprod.h"
#include "kai/ukernels/matmul/matmul_clamp_f32_qai8dxp_qsi4c32p/kai_matmul_clamp_f32_qai8dxp4x8_qsi4c32p8x8_4x8x32_neon_i8mm.h"
#include "kai/ukernels/matmul/matmul_clamp_f32_qai8dxp_qsi4cxp/kai_matmul_clamp_f32_qai8dxp1x8_qsi4cxp8x8_1x8x32_neon_dotprod.h"
#include "kai/ukernels/matmul/matmul_clamp_f32_qai8dxp_qsi4cxp/kai_matmul_clamp_f32_qai8dxp4x8_qsi4cxp8x8_8x8x32_neon_i8mm.h"
#include "kai/ukernels/matmul/matmul_clamp_f32_qai8dxp_qsi8cxp/kai_matmul_clamp_f32_qai8dxp4x8_qsi8cxp4x8_16x4_neon_i8mm.h"
#include "kai/ukernels/matmul/pack/kai_rhs_pack_nxk_qsi4c32p_qsu4c32s1s0.h"
#include "kai/ukernels/matmul/pack/kai_rhs_pack_nxk_qsi4cxp_qs4cxs1s0.h"
#include "kai/ukernels/matmul/pack/kai_rhs_pack_nxk_qsi8cxp_qsi8cx_neon.h"

// Clang 14 does not look at `.arch` below, others do.
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("dotprod"))), apply_to = function)
#endif

namespace edgewise::xnnpack {
namespace {

// What KleidiAI calls bl, and the depth where columns have one scale, is a multiple of it.
constexpr size_t kStep = 32;
constexpr size_t kGemmRows = 4;  // mr; a GEMV's is 1

bool takes_blocks(const GraphValue& filter) {
  return filter.type == DataType::kQbint4 && filter.block_size % kStep == 0;
}

bool takes(const GraphValue& filter) {
  const bool has_columns = filter.type == DataType::kQcint8 ||
                           (filter.type == DataType::kQcint4 && filter.zero_point == 8);
  const size_t depth = filter.shape[1];
  return has_columns ? depth % kStep == 0 && depth <= kMostSummed : takes_blocks(filter);
}

// ---- weights: of so many columns (nr) as many as KleidiAI's kr, which is the splits (sr) times
// kChunk; nibbles of a byte lie kChunk weights apart.

constexpr size_t kGroupColumns = 4;  // of bytes

template <size_t kChunk>
struct Form {
  size_t columns;
  size_t splits;

  size_t depth() const { return splits * kChunk; }
};

template <size_t kChunk>
constexpr Form<kChunk> form_of(DataType type) {
  if (type == DataType::kQcint8) return {.columns = kGroupColumns, .splits = 1};
  return {.columns = 8, .splits = 2};
}

template <size_t kChunk>
size_t panel_bytes(const GraphValue& filter) {
  const Form form = form_of<kChunk>(filter.type);
  const size_t depth = filter.shape[1];
  switch (filter.type) {
    case DataType::kQbint4:
      return kai_get_rhs_packed_size_rhs_pack_nxk_qsi4c32p_qsu4c32s1s0(
          kRowGemmColumns, depth, form.columns, form.depth(), form.splits, filter.block_size,
          kai_dt_bf16);
    case DataType::kQcint4:
      return kai_get_rhs_packed_size_rhs_pack_nxk_qsi4cxp_qs4cxs1s0(
          kRowGemmColumns, depth, form.columns, form.depth(), form.splits);
    default:
      return kai_get_rhs_packed_size_rhs_pack_nxk_qsi8cxp_qsi8cx_neon(
          kRowGemmColumns, depth, form.columns, form.depth(), form.splits);
  }
}

template <size_t kChunk>
void pack(const GraphValue& filter, const float* bias, size_t first, std::byte* panel) {
  const Form form = form_of<kChunk>(filter.type);
  const size_t depth = filter.shape[1], stride = depth * bits_of(filter.type) / 8;
  const size_t columns = std::min(kRowGemmColumns, filter.shape[0] - first);
  const auto* weights = reinterpret_cast<const uint8_t*>(filter.data.bytes.data()) + first * stride;
  if (bias != nullptr) bias += first;
  switch (filter.type) {
    case DataType::kQbint4: {
      const size_t blocks = depth / filter.block_size;
      const kai_rhs_pack_nxk_qsi4c32p_qsu4c32s1s0_params params = {
          .lhs_zero_point = 1, .rhs_zero_point = 8, .scale_dt = kai_dt_bf16};
      kai_run_rhs_pack_nxk_qsi4c32p_qsu4c32s1s0(1, columns, depth, form.columns, form.depth(),
                                                form.splits, filter.block_size, weights, stride,
                                                bias, filter.block_scales.data() + first * blocks,
                                                blocks * sizeof(uint16_t), panel, 0, &params);
      return;
    }
    case DataType::kQcint4: {
      const kai_rhs_pack_nxk_qsi4cxp_qs4cxs1s0_params params = {.lhs_zero_point = 1,
                                                                .rhs_zero_point = 8};
      kai_run_rhs_pack_nxk_qsi4cxp_qs4cxs1s0(
          1, columns, depth, form.columns, form.depth(), form.splits, weights, bias,
          filter.channel_scales.data() + first, panel, 0, &params);
      return;
    }
    default: {
      const kai_rhs_pack_qsi8cx_params params = {.lhs_zero_point = 1, .scale_multiplier = 1};
      kai_run_rhs_pack_nxk_qsi8cxp_qsi8cx_neon(
          1, columns, depth, form.columns, form.depth(), form.splits,
          reinterpret_cast<const int8_t*>(weights), bias, filter.channel_scales.data() + first,
          panel, 0, &params);
    }
  }
}

// ---- rows
//
// Not by KleidiAI's own function: of 2000 random rows of 1024 it gave a third a scale that is the
// next float, and where a row's largest number is minus its smallest, one number of 1300 another
// integer.
//
// A group of rows: kChunk bytes of each, the next ones of each and so on; then the zero points of
// all, negated, and the scales of all.

size_t rows_of_group(size_t rows) { return rows == 1 ? 1 : kGemmRows; }
size_t group_bytes(size_t group_rows, size_t depth) {
  return group_rows * (depth + sizeof(int32_t) + sizeof(float));
}

size_t rows_bytes(size_t rows, size_t depth) {
  const size_t group_rows = rows_of_group(rows);
  return divide_up(rows, group_rows) * group_bytes(group_rows, depth);
}

// NaN is left out of the range.
QuantizedRow row_of(const float* x, size_t depth) {
  float32x4_t min[4] = {}, max[4] = {}, zeros[4] = {};
  for (size_t i = 0; i < depth; i += 16) {
    for (size_t j = 0; j < 4; ++j) {
      const float32x4_t some = vld1q_f32(x + i + 4 * j);
      min[j] = vminnmq_f32(min[j], some);
      max[j] = vmaxnmq_f32(max[j], some);
      zeros[j] = vfmaq_n_f32(zeros[j], some, 0);
    }
  }
  return quantized_row(
      vminvq_f32(vminq_f32(vminq_f32(min[0], min[1]), vminq_f32(min[2], min[3]))),
      vmaxvq_f32(vmaxq_f32(vmaxq_f32(max[0], max[1]), vmaxq_f32(max[2], max[3]))),
      vaddvq_f32(vaddq_f32(vaddq_f32(zeros[0], zeros[1]), vaddq_f32(zeros[2], zeros[3]))));
}

int8x8_t eight_of(const float* x, float factor, int16x8_t zero_point) {
  const int32x4_t low = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x), factor));
  const int32x4_t high = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 4), factor));
  const int16x8_t both = vcombine_s16(vqmovn_s32(low), vqmovn_s32(high));
  return vqmovn_s16(vqaddq_s16(both, zero_point));
}

template <size_t kChunk>
void quantize(const float* x, size_t rows, size_t depth, size_t row, std::byte* to) {
  const size_t group_rows = rows_of_group(rows), in_group = row % group_rows;
  to += row / group_rows * group_bytes(group_rows, depth);
  const QuantizedRow parameters = row_of(x, depth);
  const float factor = 1 / parameters.scale;
  const int16x8_t zero_point = vdupq_n_s16(static_cast<int16_t>(parameters.zero_point));
  auto* q = reinterpret_cast<int8_t*>(to) + in_group * kChunk;
  for (size_t i = 0; i < depth; i += 8) {
    const int8x8_t eight = eight_of(x + i, factor, zero_point);
    if constexpr (kChunk == 8) {
      vst1_s8(q, eight);
    } else {
      vst1_lane_s32(reinterpret_cast<int32_t*>(q), vreinterpret_s32_s8(eight), 0);
      vst1_lane_s32(reinterpret_cast<int32_t*>(q + group_rows * kChunk), vreinterpret_s32_s8(eight),
                    1);
    }
    q += group_rows * 8;
  }
  auto* zero_points = reinterpret_cast<int32_t*>(to + group_rows * depth);
  zero_points[in_group] = -parameters.zero_point;
  reinterpret_cast<float*>(zero_points + group_rows)[in_group] = parameters.scale;
}

// ---- products

using RunBlocks = void (*)(size_t m, size_t n, size_t k, size_t bl, const void* lhs,
                           const void* rhs, float* dst, size_t dst_stride_row,
                           size_t dst_stride_col, float min, float max);

template <RunBlocks kGemv, RunBlocks kGemm>
void multiply_blocks(const RowGemmTile& tile) {
  (tile.rows == 1 ? kGemv : kGemm)(tile.rows, tile.columns, tile.depth, tile.block, tile.a,
                                   tile.panel, tile.c, tile.c_stride * sizeof(float), sizeof(float),
                                   tile.min, tile.max);
}

// One row times bytes. KleidiAI's executes a third more instructions: it takes 4 columns at a time.
// Of 8 steps of depth a group has the bytes of its columns one after another, and at its end their
// sums, scales and biases.

constexpr size_t kGroups = 4;  // at a time

size_t group_stride(size_t depth) {
  return kGroupColumns * (depth + sizeof(int32_t) + 2 * sizeof(float));
}

HWY_INLINE int32x4_t plus_dots(int32x4_t sum, int8x16_t weights, int8x16_t x) {
  __asm__(".arch armv8.2-a+dotprod\n\tsdot %0.4s, %1.16b, %2.16b"
          : "+w"(sum)
          : "w"(weights), "w"(x));
  return sum;
}

void multiply_groups(const RowGemmTile& tile, const std::byte* panel, float* c, size_t columns) {
  const size_t depth = tile.depth, stride = group_stride(depth);
  const auto* x = reinterpret_cast<const int8_t*>(tile.a);
  const int8_t* groups[kGroups];
  int32x4_t sums[kGroups][2] = {};
#pragma GCC unroll 4
  for (size_t i = 0; i < kGroups; ++i) {
    groups[i] = reinterpret_cast<const int8_t*>(panel) + i * stride;
  }
  for (size_t k = 0; k < depth; k += 16) {
    const int64x2_t both = vreinterpretq_s64_s8(vld1q_s8(x + k));
    const int8x16_t low = vreinterpretq_s8_s64(vdupq_laneq_s64(both, 0));
    const int8x16_t high = vreinterpretq_s8_s64(vdupq_laneq_s64(both, 1));
#pragma GCC unroll 4
    for (size_t i = 0; i < kGroups; ++i) {
      const int8x16x4_t weights = vld1q_s8_x4(groups[i]);
      sums[i][0] = plus_dots(sums[i][0], weights.val[0], low);
      sums[i][1] = plus_dots(sums[i][1], weights.val[1], low);
      sums[i][0] = plus_dots(sums[i][0], weights.val[2], high);
      sums[i][1] = plus_dots(sums[i][1], weights.val[3], high);
      groups[i] += 16 * kGroupColumns;
    }
  }
  int32_t zero_point;  // negated
  float x_scale;
  std::memcpy(&zero_point, tile.a + depth, sizeof(zero_point));
  std::memcpy(&x_scale, tile.a + depth + sizeof(zero_point), sizeof(x_scale));
#pragma GCC unroll 4
  for (size_t i = 0; i < kGroups; ++i) {
    if (i * kGroupColumns >= columns) return;
    const auto* of_columns = reinterpret_cast<const int32_t*>(groups[i]);
    const auto* scales = reinterpret_cast<const float*>(of_columns + kGroupColumns);
    const int32x4_t sum =
        vmlaq_n_s32(vpaddq_s32(sums[i][0], sums[i][1]), vld1q_s32(of_columns), zero_point);
    float32x4_t y = vmulq_f32(vcvtq_f32_s32(sum), vmulq_n_f32(vld1q_f32(scales), x_scale));
    y = vaddq_f32(y, vld1q_f32(scales + kGroupColumns));
    y = vminq_f32(vmaxq_f32(y, vdupq_n_f32(tile.min)), vdupq_n_f32(tile.max));
    float four[kGroupColumns];
    vst1q_f32(four, y);
    const size_t left = std::min(columns - i * kGroupColumns, kGroupColumns);
    std::memcpy(c + i * kGroupColumns, four, left * sizeof(float));
  }
}

void multiply_row(const RowGemmTile& tile) {
  constexpr size_t kColumns = kGroups * kGroupColumns;
  for (size_t first = 0; first < tile.columns; first += kColumns) {
    multiply_groups(tile, tile.panel + first / kGroupColumns * group_stride(tile.depth),
                    tile.c + first, std::min(tile.columns - first, kColumns));
  }
}

void multiply_columns(const RowGemmTile& tile) {
  const bool has_nibbles = tile.weights == DataType::kQcint4;
  if (tile.rows == 1 && !has_nibbles) {
    multiply_row(tile);
    return;
  }
  const auto run = !has_nibbles ? kai_run_matmul_clamp_f32_qai8dxp4x8_qsi8cxp4x8_16x4_neon_i8mm
                   : tile.rows == 1
                       ? kai_run_matmul_clamp_f32_qai8dxp1x8_qsi4cxp8x8_1x8x32_neon_dotprod
                       : kai_run_matmul_clamp_f32_qai8dxp4x8_qsi4cxp8x8_8x8x32_neon_i8mm;
  run(tile.rows, tile.columns, tile.depth, tile.a, tile.panel, tile.c,
      tile.c_stride * sizeof(float), sizeof(float), tile.min, tile.max);
}

void multiply_any(const RowGemmTile& tile) {
  if (tile.weights == DataType::kQbint4) {
    multiply_blocks<kai_run_matmul_clamp_f32_qai8dxp1x8_qsi4c32p8x8_1x8x32_neon_dotprod,
                    kai_run_matmul_clamp_f32_qai8dxp4x8_qsi4c32p8x8_4x8x32_neon_i8mm>(tile);
  } else {
    multiply_columns(tile);
  }
}

// Of those with one form of weights for GEMV and GEMM the pairs that execute fewest instructions
// for a single row. Those for columns with dot products alone execute 1.1 to 1.4 times as many as
// XNNPACK's.
constexpr RowGemmKernels kDotProducts = {
    .name = "kleidiai dotprod",
    .takes = takes_blocks,
    .panel_bytes = panel_bytes<4>,
    .pack = pack<4>,
    .rows_bytes = rows_bytes,
    .quantize = quantize<4>,
    .multiply = multiply_blocks<kai_run_matmul_clamp_f32_qai8dxp1x4_qsi4c32p8x4_1x8_neon_dotprod,
                                kai_run_matmul_clamp_f32_qai8dxp4x4_qsi4c32p8x4_4x8_neon_dotprod>};
constexpr RowGemmKernels kInt8Products = {.name = "kleidiai i8mm",
                                          .takes = takes,
                                          .panel_bytes = panel_bytes<8>,
                                          .pack = pack<8>,
                                          .rows_bytes = rows_bytes,
                                          .quantize = quantize<8>,
                                          .multiply = multiply_any};

}  // namespace

const RowGemmKernels* row_gemm_kernels(DataType) {
  switch (cpu_level().extra) {
    case CpuLevel::kDotProduct:
      return &kDotProducts;
    case CpuLevel::kInt8Products:
    case CpuLevel::kSme2:
      return &kInt8Products;
    default:
      return nullptr;
  }
}

}  // namespace edgewise::xnnpack

#ifdef __clang__
#pragma clang attribute pop
#endif

#endif
