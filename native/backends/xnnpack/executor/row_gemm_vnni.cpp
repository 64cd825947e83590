// Rows, and which kernel is for which weights.
#include "backends/xnnpack/executor/row_gemm_vnni.h"

#ifdef EDGEWISE_HAS_ROW_GEMM_X86

#include "core/cpu_level.h"
#include "hwy/detect_targets.h"

namespace edgewise::xnnpack {
namespace vnni {
namespace {

void pack(const GraphValue& filter, const float* bias, size_t first, std::byte* panel) {
  pack_panel(filter, bias, first, Nibbles::kSigned, 16, panel);  // `unpack` multiplies by 16
}

void multiply(const RowGemmTile& tile) {
  (tile.weights == DataType::kQbint4 ? multiply_blocks : multiply_channels)(tile);
}

size_t rows_bytes(size_t rows, size_t depth) {
  return parameters_bytes(rows) + divide_up(rows, 2) * 2 * row_stride(depth);
}

// use(vector, where it begins) for all numbers; behind the last one zeros.
template <typename Use>
EDGEWISE_VNNI_INLINE void for_each_vector(const float* from, size_t count, Use use) {
  size_t at = 0;
  for (; at + kLanes <= count; at += kLanes) use(_mm512_loadu_ps(from + at), at);
  if (at == count) return;
  const auto mask = static_cast<__mmask16>((1u << (count - at)) - 1);
  use(_mm512_maskz_loadu_ps(mask, from + at), at);
}

EDGEWISE_VNNI void quantize_row(const float* from, size_t count, uint8_t* to, QuantizedRow* row) {
  const __m512 zero_float = _mm512_setzero_ps();
  __m512 min = zero_float, max = zero_float, zeros = zero_float;
  for_each_vector(from, count, [&](__m512 x, size_t) EDGEWISE_VNNI {
    min = _mm512_min_ps(x, min);
    max = _mm512_max_ps(x, max);
    zeros = _mm512_fmadd_ps(x, zero_float, zeros);
  });
  *row = quantized_row(_mm512_reduce_min_ps(min), _mm512_reduce_max_ps(max),
                       _mm512_reduce_add_ps(zeros));
  const __m512 factor = _mm512_set1_ps(1 / row->scale), most = _mm512_set1_ps(INT16_MAX);
  const __m512i zero = _mm512_set1_epi32(row->zero_point + 128);
  // Of eight numbers those with even indices first: low nibbles are multiplied with them.
  const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
  for_each_vector(from, count, [&](__m512 x, size_t at) EDGEWISE_VNNI {
    x = _mm512_min_ps(_mm512_mul_ps(x, factor), most);
    const __m512i q = _mm512_add_epi32(_mm512_cvtps_epi32(x), zero);
    const __m128i bytes = _mm512_cvtusepi32_epi8(_mm512_max_epi32(q, _mm512_setzero_si512()));
    // Of the last word, too, and beyond: there is room.
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + at), _mm_shuffle_epi8(bytes, order));
  });
}

void quantize(const float* x, size_t rows, size_t depth, size_t row, std::byte* to) {
  auto* bytes = reinterpret_cast<uint8_t*>(to + parameters_bytes(rows));
  quantize_row(x, depth, bytes + row * row_stride(depth),
               reinterpret_cast<QuantizedRow*>(to) + row);
}

constexpr RowGemmKernels kKernels = {.name = "avx512vnni",
                                     .takes = fits_panels,
                                     .panel_bytes = panel_bytes,
                                     .pack = pack,
                                     .rows_bytes = rows_bytes,
                                     .quantize = quantize,
                                     .multiply = multiply};

}  // namespace
}  // namespace vnni

const RowGemmKernels* row_gemm_kernels(DataType weights) {
  if (cpu_level().extra == CpuLevel::kVnni) return &vnni::kKernels;
  return cpu_level().target == HWY_AVX2 ? row_gemm_kernels_avx2(weights) : nullptr;
}

}  // namespace edgewise::xnnpack

#endif
