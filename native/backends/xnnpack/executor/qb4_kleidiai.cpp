// 4-bit weights in blocks: Arm's KleidiAI, on CPUs with dot products of bytes, and with products of
// matrices of bytes.
#include "backends/xnnpack/executor/row_gemm_kernels.h"

#ifdef EDGEWISE_HAS_KLEIDIAI

#include <arm_neon.h>

#include "backends/xnnpack/executor/parallel.h"
#include "core/cpu_level.h"
#include "kai/ukernels/matmul/matmul_clamp_f32_qai8dxp_qsi4c32p/kai_matmul_clamp_f32_qai8dxp1x4_qsi4c32p8x4_1x8_neon_dotprod.h"
#include "kai/ukernels/matmul/matmul_clamp_f32_qai8dxp_qsi4c32p/kai_matmul_clamp_f32_qai8dxp1x8_qsi4c32p8x8_1x8x32_neon_dotprod.h"
#include "kai/ukernels/matmul/matmul_clamp_f32_qai8dxp_qsi4c32p/kai_matmul_clamp_f32_qai8dxp4x4_qsi4c32p8x4_4x8_neon_dotprod.h"
#include "kai/ukernels/matmul/matmul_clamp_f32_qai8dxp_qsi4c32p/kai_matmul_clamp_f32_qai8dxp4x8_qsi4c32p8x8_4x8x32_neon_i8mm.h"
#include "kai/ukernels/matmul/pack/kai_rhs_pack_nxk_qsi4c32p_qsu4c32s1s0.h"

namespace edgewise::xnnpack {
namespace {

// What KleidiAI calls bl is a multiple of it.
constexpr size_t kBlockStep = 32;
constexpr size_t kPackedColumns = 8;  // nr
constexpr size_t kGemmRows = 4;       // mr; a GEMV's is 1
constexpr size_t kSplits = 2;         // sr: nibbles of a byte lie kr / sr weights apart

bool takes(const GraphValue& filter) {
  return filter.type == DataType::kQbint4 && filter.block_size % kBlockStep == 0;
}

// Of 8 columns as many weights as KleidiAI's kr, in two parts of kChunk.
template <size_t kChunk>
size_t panel_bytes(const GraphValue& filter) {
  return kai_get_rhs_packed_size_rhs_pack_nxk_qsi4c32p_qsu4c32s1s0(
      kRowGemmColumns, filter.shape[1], kPackedColumns, kSplits * kChunk, kSplits,
      filter.block_size, kai_dt_bf16);
}

template <size_t kChunk>
void pack(const GraphValue& filter, const float* bias, size_t first, std::byte* panel) {
  const size_t depth = filter.shape[1], blocks = depth / filter.block_size;
  const kai_rhs_pack_nxk_qsi4c32p_qsu4c32s1s0_params params = {
      .lhs_zero_point = 1, .rhs_zero_point = 8, .scale_dt = kai_dt_bf16};
  kai_run_rhs_pack_nxk_qsi4c32p_qsu4c32s1s0(
      1, std::min(kRowGemmColumns, filter.shape[0] - first), depth, kPackedColumns,
      kSplits * kChunk, kSplits, filter.block_size,
      reinterpret_cast<const uint8_t*>(filter.data.bytes.data()) + first * depth / 2, depth / 2,
      bias == nullptr ? nullptr : bias + first, filter.block_scales.data() + first * blocks,
      blocks * sizeof(uint16_t), panel, 0, &params);
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

// Numbers that are none are left out of it.
QuantizedRow row_of(const float* x, size_t depth) {
  float32x4_t min[4] = {}, max[4] = {};
  for (size_t i = 0; i < depth; i += 16) {
    for (size_t j = 0; j < 4; ++j) {
      const float32x4_t some = vld1q_f32(x + i + 4 * j);
      min[j] = vminnmq_f32(min[j], some);
      max[j] = vmaxnmq_f32(max[j], some);
    }
  }
  return quantized_row(vminvq_f32(vminq_f32(vminq_f32(min[0], min[1]), vminq_f32(min[2], min[3]))),
                       vmaxvq_f32(vmaxq_f32(vmaxq_f32(max[0], max[1]), vmaxq_f32(max[2], max[3]))));
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

using Run = void (*)(size_t m, size_t n, size_t k, size_t bl, const void* lhs, const void* rhs,
                     float* dst, size_t dst_stride_row, size_t dst_stride_col, float min,
                     float max);

template <Run kGemv, Run kGemm>
void multiply(const RowGemmTile& tile) {
  (tile.rows == 1 ? kGemv : kGemm)(tile.rows, tile.columns, tile.depth, tile.block, tile.a,
                                   tile.panel, tile.c, tile.c_stride * sizeof(float), sizeof(float),
                                   tile.min, tile.max);
}

// Of those with one form of weights for GEMV and GEMM the pairs that execute fewest instructions
// for a single row.
constexpr RowGemmKernels kDotProducts = {
    .name = "kleidiai dotprod",
    .takes = takes,
    .panel_bytes = panel_bytes<4>,
    .pack = pack<4>,
    .rows_bytes = rows_bytes,
    .quantize = quantize<4>,
    .multiply = multiply<kai_run_matmul_clamp_f32_qai8dxp1x4_qsi4c32p8x4_1x8_neon_dotprod,
                         kai_run_matmul_clamp_f32_qai8dxp4x4_qsi4c32p8x4_4x8_neon_dotprod>};
constexpr RowGemmKernels kInt8Products = {
    .name = "kleidiai i8mm",
    .takes = takes,
    .panel_bytes = panel_bytes<8>,
    .pack = pack<8>,
    .rows_bytes = rows_bytes,
    .quantize = quantize<8>,
    .multiply = multiply<kai_run_matmul_clamp_f32_qai8dxp1x8_qsi4c32p8x8_1x8x32_neon_dotprod,
                         kai_run_matmul_clamp_f32_qai8dxp4x8_qsi4c32p8x8_4x8x32_neon_i8mm>};

}  // namespace

const RowGemmKernels* row_gemm_kernels() {
  switch (cpu_level().extra) {
    case CpuLevel::kDotProduct:
      return &kDotProducts;
    case CpuLevel::kInt8Products:
      return &kInt8Products;
    default:
      return nullptr;
  }
}

}  // namespace edgewise::xnnpack

#endif
