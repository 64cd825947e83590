#include "backends/xnnpack/executor/sme_kernels.h"

#ifdef EDGEWISE_HAS_KLEIDIAI

#include <cstdint>
#include <cstring>

#include "core/cpu_level.h"
#include "kai/ukernels/matmul/matmul_clamp_f16_f16p_f16p/kai_matmul_clamp_f16_f16p2vlx2_f16p2vlx2_2vlx2vl_sme2_mopa.h"
#include "kai/ukernels/matmul/matmul_clamp_f32_f32p_f32p/kai_matmul_clamp_f32_f32p2vlx1_f32p2vlx1biasf32_sme2_mopa.h"
#include "kai/ukernels/matmul/matmul_clamp_qai8_qai8p_qsi8cxp/kai_matmul_clamp_qai8_qai8p2vlx4_qsi8cxpsb2vlx4_2vlx2vl_sme2_mopa.h"
#include "kai/ukernels/matmul/pack/kai_lhs_imatmul_pack_x16p2vlx2_x16p_sme.h"
#include "kai/ukernels/matmul/pack/kai_lhs_imatmul_pack_x32p2vlx1_x32p_sme.h"
#include "kai/ukernels/matmul/pack/kai_lhs_imatmul_pack_x8p2vlx4_x8p_sme.h"

namespace edgewise::xnnpack {
namespace {

template <auto kPack>
void pack(size_t rows, size_t segments, size_t length, const void* const* pointers, void* packed) {
  kPack(rows, segments, length, pointers, 0, nullptr, packed);
}

template <auto kMultiply, size_t kBytes>
void multiply(size_t rows, size_t columns, size_t depth, const void* packed, const void* panel,
              void* out, size_t out_stride, const SmeFinish& finish) {
  if constexpr (kBytes == 1) {
    const kai_matmul_requantize32_params range = {.min_value = finish.range.min,
                                                  .max_value = finish.range.max,
                                                  .output_zero_point = finish.range.zero_point};
    kMultiply(rows, columns, depth, packed, panel, out, out_stride, kBytes, &range);
  } else {
    kMultiply(rows, columns, depth, packed, panel, out, out_stride, kBytes, finish.min, finish.max);
  }
}

// Bits: of an exponent, all of which tell an infinity or NaN.
template <typename Bits, Bits kExponent>
bool is_finite(const void* numbers, size_t count) {
  const auto* x = static_cast<const Bits*>(numbers);
  Bits found = 0;
  for (size_t i = 0; i < count; ++i) {
    found |= static_cast<Bits>((x[i] & kExponent) == kExponent ? 1 : 0);
  }
  return found == 0;
}

template <typename T, auto kColumns>
void multiply_row(const SmeRow& row, const void* panel, size_t columns, void* out,
                  const SmeFinish& finish) {
  constexpr size_t kStep = sizeof(float) / sizeof(T);
  const size_t width = kColumns(), padded = round_up(row.length, kStep);
  const auto* bias = static_cast<const T*>(panel);
  const T* weights = bias + width;
  for (size_t j = 0; j < columns; ++j) {
    auto sum = static_cast<float>(bias[j]);
    for (size_t segment = 0; segment < row.segments; ++segment) {
      const T* in = static_cast<const T*>(row.segment(segment));
      for (size_t i = 0; i < row.length; ++i) {
        const size_t p = segment * padded + i;
        sum += static_cast<float>(in[i]) *
               static_cast<float>(weights[(p / kStep * width + j) * kStep + p % kStep]);
      }
    }
    sum = sum < finish.min ? finish.min : sum;
    static_cast<T*>(out)[j] = static_cast<T>(sum > finish.max ? finish.max : sum);
  }
}

SmeKernels float_kernels_of_cpu() {
  constexpr auto columns = kai_get_n_step_matmul_clamp_f32_f32p2vlx1_f32p2vlx1biasf32_sme2_mopa;
  return {.name = "kleidiai sme2 " + std::to_string(columns()),
          .type = DataType::kFp32,
          .number_bytes = sizeof(float),
          .bias_bytes = sizeof(float),
          .has_scales = false,
          .rows = kai_get_m_step_matmul_clamp_f32_f32p2vlx1_f32p2vlx1biasf32_sme2_mopa(),
          .columns = columns(),
          .pack = pack<kai_run_lhs_imatmul_pack_x32p2vlx1_x32p_sme>,
          .multiply = multiply<kai_run_matmul_clamp_f32_f32p2vlx1_f32p2vlx1biasf32_sme2_mopa, 4>,
          .is_finite = is_finite<uint32_t, 0x7f800000>,
          .multiply_row = multiply_row<float, columns>};
}

SmeKernels half_kernels_of_cpu() {
  constexpr auto columns = kai_get_n_step_matmul_clamp_f16_f16p2vlx2_f16p2vlx2_2vlx2vl_sme2_mopa;
  return {.name = "kleidiai sme2 f16 " + std::to_string(columns()),
          .type = DataType::kFp16,
          .number_bytes = sizeof(uint16_t),
          .bias_bytes = sizeof(uint16_t),
          .has_scales = false,
          .rows = kai_get_m_step_matmul_clamp_f16_f16p2vlx2_f16p2vlx2_2vlx2vl_sme2_mopa(),
          .columns = columns(),
          .pack = pack<kai_run_lhs_imatmul_pack_x16p2vlx2_x16p_sme>,
          .multiply = multiply<kai_run_matmul_clamp_f16_f16p2vlx2_f16p2vlx2_2vlx2vl_sme2_mopa, 2>,
          .is_finite = is_finite<uint16_t, 0x7c00>,
          .multiply_row = multiply_row<__fp16, columns>};
}

SmeKernels int8_kernels_of_cpu() {
  constexpr auto columns =
      kai_get_n_step_matmul_clamp_qai8_qai8p2vlx4_qsi8cxpsb2vlx4_2vlx2vl_sme2_mopa;
  return {.name = "kleidiai sme2 int8 " + std::to_string(columns()),
          .type = DataType::kQint8,
          .number_bytes = 1,
          .bias_bytes = sizeof(int32_t),
          .has_scales = true,
          .rows = kai_get_m_step_matmul_clamp_qai8_qai8p2vlx4_qsi8cxpsb2vlx4_2vlx2vl_sme2_mopa(),
          .columns = columns(),
          .pack = pack<kai_run_lhs_imatmul_pack_x8p2vlx4_x8p_sme>,
          .multiply =
              multiply<kai_run_matmul_clamp_qai8_qai8p2vlx4_qsi8cxpsb2vlx4_2vlx2vl_sme2_mopa, 1>,
          .is_finite = nullptr,
          .multiply_row = nullptr};
}

}  // namespace

void add_within(const float* added, size_t count, float min, float max, float* sums) {
  for (size_t i = 0; i < count; ++i) {
    const float sum = sums[i] + added[i];
    const float bounded = sum < min ? min : sum;
    sums[i] = bounded > max ? max : bounded;
  }
}

const SmeKernels* sme_kernels(DataType type) {
  if (cpu_level().extra != CpuLevel::kSme2) return nullptr;
  static const SmeKernels all[] = {float_kernels_of_cpu(), half_kernels_of_cpu(),
                                   int8_kernels_of_cpu()};
  for (const SmeKernels& kernels : all) {
    if (kernels.type == type) return &kernels;
  }
  return nullptr;
}

}  // namespace edgewise::xnnpack

#endif
