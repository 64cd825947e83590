// Quantization and its inverse: quantized_decomposed::, torchao::.
#include "quantization.h"

#include <algorithm>
#include <cmath>

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

// Scales and zero points, by block.
struct Parameters {
  Scratch<double> scales;
  Scratch<double> zeros;
};

Status read_parameter(const Tensor* tensor, int64_t count, const char* name,
                      Scratch<double>* values) {
  EDGEWISE_RETURN_IF_ERROR(values->reserve(std::max<int64_t>(count, 1)));
  if (tensor == nullptr) {
    std::fill_n(values->data(), count, 0.0);
    return {};
  }
  const View view = view_of(*tensor);
  if (!is_computable(view.type) || view.numel() != count || !view.is_row_major()) {
    return error(Code::kInvalidArgument, "%s must have %lld numbers; got %s", name,
                 static_cast<long long>(count), tensor->describe().c_str());
  }
  load<double>(view.type, view.data, 1, count, values->data());
  return {};
}

Status finish_parameters(const Parameters& parameters, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (!(parameters.scales[i] > 0) || !std::isfinite(parameters.scales[i])) {
      return error(Code::kInvalidArgument, "scales must be positive and finite; got %g",
                   parameters.scales[i]);
    }
  }
  return {};
}

Status read_tensors(KernelContext& context, size_t scale, size_t zero, int64_t count,
                    Parameters* parameters) {
  const Tensor* scales = context.tensor(scale);
  const Tensor* zeros = context.optional_tensor(zero);
  if (!context.ok()) return context.status();
  EDGEWISE_TRY(read_parameter(scales, count, "scale", &parameters->scales));
  EDGEWISE_TRY(read_parameter(zeros, count, "zero_point", &parameters->zeros));
  EDGEWISE_TRY(finish_parameters(*parameters, count));
  return {};
}

Status read_numbers(KernelContext& context, size_t scale, size_t zero, Parameters* parameters) {
  EDGEWISE_TRY(parameters->scales.reserve(1));
  EDGEWISE_TRY(parameters->zeros.reserve(1));
  parameters->scales[0] = context.number(scale);
  parameters->zeros[0] = context.number(zero);
  if (!context.ok()) return context.status();
  EDGEWISE_TRY(finish_parameters(*parameters, 1));
  return {};
}

// The smallest and largest integer that a type holds.
Status range_of(ScalarType type, Range* range) {
  switch (type) {
    case ScalarType::kChar:
      *range = {-128, 127};
      return {};
    case ScalarType::kByte:
      *range = {0, 255};
      return {};
    case ScalarType::kShort:
      *range = {-32768, 32767};
      return {};
    case ScalarType::kInt:
      *range = {-2147483648.0, 2147483647.0};
      return {};
    default:
      return error(Code::kUnsupported, "quantized numbers must be int8, uint8, int16 or int32");
  }
}

// quant_min and quant_max; None of torchao's is the type's own.
Status read_range(KernelContext& context, size_t low, size_t high, ScalarType type, Range* range) {
  EDGEWISE_TRY(range_of(type, range));
  const std::optional<double> given_low = context.optional_number(low);
  const std::optional<double> given_high = context.optional_number(high);
  if (!context.ok()) return context.status();
  const Range wanted{given_low.value_or(range->low), given_high.value_or(range->high)};
  if (!(range->low <= wanted.low && wanted.low <= wanted.high && wanted.high <= range->high)) {
    return context.fail(Code::kInvalidArgument,
                        "quant_min and quant_max must be within the type; got %g, %g", wanted.low,
                        wanted.high);
  }
  *range = wanted;
  return {};
}

// round(x / scale) + zero, as PyTorch rounds: times the reciprocal, in float32. Tokens add
// the zero point before they round, in double.
template <bool kToken>
double quantized(float x, double scale, double zero, const Range& range) {
  double steps;
  if constexpr (kToken) {
    steps = std::nearbyint(static_cast<double>(x) * (1.0 / scale) + zero);
  } else {
    steps = static_cast<double>(std::nearbyint(x * static_cast<float>(1.0 / scale))) + zero;
  }
  if (std::isnan(steps)) return range.low;
  return std::clamp(steps, range.low, range.high);
}

template <bool kToken>
void quantize_run(const float* reals, int64_t n, double scale, double zero, const Range& range,
                  int64_t* integers) {
  for (int64_t i = 0; i < n; ++i) {
    integers[i] = static_cast<int64_t>(quantized<kToken>(reals[i], scale, zero, range));
  }
}

Status quantize_blocks(KernelContext& context, Shape shape, const Tensor& input,
                       const Blocks& blocks, const Parameters& parameters, size_t low, size_t high,
                       Tensor* out) {
  Range range;
  EDGEWISE_RETURN_IF_ERROR(read_range(context, low, high, out->type(), &range));
  const View source = view_of(input);
  if (!is_floating(source.type)) {
    return context.fail(Code::kInvalidArgument, "what is quantized must be floating; got %s",
                        input.describe().c_str());
  }
  EDGEWISE_TRY(out->resize(input.sizes()));
  const View target = view_of(*out);
  float reals[kRun];
  int64_t integers[kRun];
  const int64_t steps[2] = {last_stride(source), last_stride(target)};
  for_runs<2>(blocks, {&source, &target}, [&](const auto& at, int64_t count, int64_t block) {
    for (int64_t start = 0; start < count; start += kRun) {
      const int64_t n = std::min(kRun, count - start);
      load<float>(source.type, source.at(at[0] + start * steps[0]), steps[0], n, reals);
      const auto run = shape == Shape::kToken ? quantize_run<true> : quantize_run<false>;
      run(reals, n, parameters.scales[block], parameters.zeros[block], range, integers);
      store<int64_t>(target.type, integers, n, target.at(at[1] + start * steps[1]), steps[1]);
    }
  });
  return context.status();
}

// What makes integers of up to 16 bits real numbers in float32, and rounds once: the difference
// from the zero point is exact.
template <typename I>
void dequantize_run(const std::byte* from, int64_t n, int32_t zero, float scale, std::byte* to) {
  const I* integers = reinterpret_cast<const I*>(from);
  float* reals = reinterpret_cast<float*>(to);
  for (int64_t i = 0; i < n; ++i) reals[i] = static_cast<float>(integers[i] - zero) * scale;
}

// The function for a type; null if there is none.
using DequantizeRun = void (*)(const std::byte*, int64_t, int32_t, float, std::byte*);
DequantizeRun dequantize_run_of(ScalarType type) {
  switch (type) {
    case ScalarType::kChar:
      return dequantize_run<int8_t>;
    case ScalarType::kByte:
      return dequantize_run<uint8_t>;
    case ScalarType::kShort:
      return dequantize_run<int16_t>;
    default:
      return nullptr;
  }
}

bool is_small_integer(double zero) {
  return std::abs(zero) <= 32768 && zero == std::nearbyint(zero);
}

// Of tensors in row-major order whose last dimension has a scale for each index: false for others.
bool dequantize_columns(const Blocks& blocks, const Parameters& parameters, const View& source,
                        const View& target) {
  const size_t rank = blocks.sizes.size();
  if (rank == 0 || blocks.block[rank - 1] != 1 || source.type != ScalarType::kChar ||
      !source.is_row_major() || !target.is_row_major()) {
    return false;
  }
  const int64_t columns = blocks.sizes[rank - 1];
  if (columns != blocks.count) return false;
  for (int64_t j = 0; j < columns; ++j) {
    if (!is_small_integer(parameters.zeros[j])) return false;
  }
  const auto* from = reinterpret_cast<const int8_t*>(source.data);
  auto* to = reinterpret_cast<float*>(target.data);
  for (int64_t end = source.numel(), start = 0; start < end; start += columns) {
    for (int64_t j = 0; j < columns; ++j) {
      const auto steps = static_cast<float>(from[start + j] - parameters.zeros[j]);
      to[start + j] = steps * static_cast<float>(parameters.scales[j]);
    }
  }
  return true;
}

// Scales are rounded to float32 but for those of tokens, as PyTorch has them.
Status dequantize_blocks(KernelContext& context, Shape shape, const Tensor& input,
                         const Blocks& blocks, const Parameters& parameters, Tensor* out) {
  const View source = view_of(input);
  if (!is_integral(source.type) || !is_floating(out->type())) {
    return context.fail(Code::kInvalidArgument, "integers become floating numbers; got %s to %s",
                        input.describe().c_str(), out->describe().c_str());
  }
  EDGEWISE_TRY(out->resize(input.sizes()));
  const View target = view_of(*out);
  double reals[kRun];
  int64_t integers[kRun];
  const int64_t steps[2] = {last_stride(source), last_stride(target)};
  const bool is_dense = steps[0] == 1 && steps[1] == 1 && target.type == ScalarType::kFloat;
  if (is_dense && shape == Shape::kChannel &&
      dequantize_columns(blocks, parameters, source, target)) {
    return context.status();
  }
  const DequantizeRun dense = is_dense ? dequantize_run_of(source.type) : nullptr;
  for_runs<2>(blocks, {&source, &target}, [&](const auto& at, int64_t count, int64_t block) {
    double scale = parameters.scales[block];
    const double zero = parameters.zeros[block];
    if (shape != Shape::kToken) scale = static_cast<float>(scale);
    if (dense && scale == static_cast<float>(scale) && is_small_integer(zero)) {
      return dense(source.at(at[0]), count, static_cast<int32_t>(zero), static_cast<float>(scale),
                   target.at(at[1]));
    }
    for (int64_t start = 0; start < count; start += kRun) {
      const int64_t n = std::min(kRun, count - start);
      load<int64_t>(source.type, source.at(at[0] + start * steps[0]), steps[0], n, integers);
      for (int64_t i = 0; i < n; ++i) {
        reals[i] = (static_cast<double>(integers[i]) - zero) * scale;
      }
      store<double>(target.type, reals, n, target.at(at[1] + start * steps[1]), steps[1]);
    }
  });
  return context.status();
}

// Where the arguments of an operator are.
struct Layout {
  size_t scale, zero, shape, low, out;
  bool are_numbers = false;
};

constexpr Layout kNumbers{1, 2, 0, 3, 6, true};
constexpr Layout kTensors{1, 2, 0, 3, 6};
constexpr Layout kChannels{1, 2, 3, 4, 7};
constexpr Layout kTokens{1, 2, 0, 3, 6};
constexpr Layout kGroups{1, 2, 6, 3, 7};
constexpr Layout kAffine{2, 3, 1, 5, 7};

Status read(KernelContext& context, Shape shape, const Layout& layout, const Tensor*& input,
            Blocks* blocks, Parameters* parameters) {
  input = context.tensor(0);
  if (!context.ok()) return context.status();
  EDGEWISE_RETURN_IF_ERROR(blocks_of(shape, context, *input, layout.shape, blocks));
  return layout.are_numbers
             ? read_numbers(context, layout.scale, layout.zero, parameters)
             : read_tensors(context, layout.scale, layout.zero, blocks->count, parameters);
}

Status quantize(KernelContext& context, Shape shape, const Layout& layout) {
  const Tensor* input = nullptr;
  Blocks blocks;
  Parameters parameters;
  EDGEWISE_RETURN_IF_ERROR(read(context, shape, layout, input, &blocks, &parameters));
  Tensor* out = output(context, layout.out);
  if (!context.ok()) return context.status();
  return quantize_blocks(context, shape, *input, blocks, parameters, layout.low, layout.low + 1,
                         out);
}

// Dequantization has one more argument before the result: the type of the result.
Status dequantize(KernelContext& context, Shape shape, const Layout& layout) {
  const Tensor* input = nullptr;
  Blocks blocks;
  Parameters parameters;
  EDGEWISE_RETURN_IF_ERROR(read(context, shape, layout, input, &blocks, &parameters));
  Tensor* out = output(context, layout.out + 1);
  if (!context.ok()) return context.status();
  return dequantize_blocks(context, shape, *input, blocks, parameters, out);
}

template <Shape kShape, Layout kLayout>
Status quantize(KernelContext& context) {
  return quantize(context, kShape, kLayout);
}
template <Shape kShape, Layout kLayout>
Status dequantize(KernelContext& context) {
  return dequantize(context, kShape, kLayout);
}

#define QD "quantized_decomposed::"
constexpr KernelEntry kKernels[] = {
    {QD "quantize_per_tensor.out", 7, quantize<Shape::kTensor, kNumbers>},
    {QD "quantize_per_tensor.Tensor_out", 7, quantize<Shape::kTensor, kTensors>},
    {QD "quantize_per_channel.out", 8, quantize<Shape::kChannel, kChannels>},
    {QD "quantize_per_token.out", 7, quantize<Shape::kToken, kTokens>},
    {QD "dequantize_per_tensor.out", 8, dequantize<Shape::kTensor, kNumbers>},
    {QD "dequantize_per_tensor.Tensor_out", 8, dequantize<Shape::kTensor, kTensors>},
    {QD "dequantize_per_channel.out", 9, dequantize<Shape::kChannel, kChannels>},
    {QD "dequantize_per_token.out", 8, dequantize<Shape::kToken, kTokens>},
    {QD "dequantize_per_channel_group.out", 9, dequantize<Shape::kGroup, kGroups>},
    {"torchao::quantize_affine.out", 8, quantize<Shape::kAffine, kAffine>},
    {"torchao::dequantize_affine.out", 9, dequantize<Shape::kAffine, kAffine>},
};
const KernelTable table(HWY_TARGET, kSelected<kKernels>);
#undef QD

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace edgewise
