// The choice of scales and zero points: quantized_decomposed::, torchao::.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "cpu_dispatch.h"
#include "quantization.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

struct Extremes {
  float low = 0, high = 0;  // zero is always among the numbers
};

// How a scale and a zero point follow from the extremes.
enum class Rule : uint8_t {
  kAsymmetric,       // zero point from the least number
  kSymmetric,        // zero point in the middle, the range is twice the larger magnitude
  kSymmetricTokens,  // the same for 127 steps, and 1e-5 at least
  kBestZero,         // zero point from the extreme that it rounds less
};

struct Choice {
  float scale = 1;
  double zero = 0;
};

Choice choose(const Extremes& extremes, const Range& range, float eps, Rule rule) {
  const float low = extremes.low, high = extremes.high;
  const auto least = static_cast<float>(range.low), most = static_cast<float>(range.high);
  const float span = most - least;
  if (rule == Rule::kSymmetricTokens) {
    return {std::max(std::max(-low, high), 1e-5f) / 127.0f, 0};
  }
  if (rule == Rule::kSymmetric) {
    const double middle = std::trunc((range.low + range.high + 1) / 2);
    return {std::max(std::max(-low, high) / (span / 2), eps), middle};
  }
  const float scale = std::max((high - low) / span, eps);
  if (rule == Rule::kAsymmetric) {
    return {scale, std::clamp<double>(least - std::nearbyint(low / scale), least, most)};
  }
  const float down = low / scale, up = high / scale;
  const float zero = (least + down) + (most + up) > 0 ? least - down : most - up;
  return {scale, std::nearbyint(std::clamp(zero, least, most))};
}

Status choose_blocks(KernelContext& context, const Tensor& input, const Blocks& blocks,
                     const Range& range, float eps, Rule rule, size_t out_index,
                     const Dims& result_sizes) {
  Tensor* scale_out = output(context, out_index);
  Tensor* zero_out = output(context, out_index + 1);
  if (!context.ok()) return context.status();
  const View source = view_of(input);
  if (!is_floating(source.type)) {
    return context.fail(Code::kInvalidArgument, "what is quantized must be floating; got %s",
                        input.describe().c_str());
  }
  Scratch<Extremes> extremes;
  EDGEWISE_TRY(extremes.reserve(std::max<int64_t>(blocks.count, 1)));
  std::fill_n(extremes.data(), blocks.count, Extremes{});
  float reals[kRun];
  for_runs<1>(blocks, {&source}, [&](const auto& at, int64_t count, int64_t block) {
    const int64_t step = last_stride(source);
    const bool direct = step == 1 && source.type == ScalarType::kFloat;
    auto [low, high] = extremes[block];
    for (int64_t start = 0; start < count; start += kRun) {
      const int64_t n = std::min(kRun, count - start);
      const std::byte* from = source.at(at[0] + start * step);
      if (!direct) load<float>(source.type, from, step, n, reals);
      const float* x = direct ? reinterpret_cast<const float*>(from) : reals;
      for (int64_t i = 0; i < n; ++i) {
        low = std::min(low, x[i]);
        high = std::max(high, x[i]);
      }
    }
    extremes[block] = {low, high};
  });
  EDGEWISE_TRY(scale_out->resize(result_sizes));
  EDGEWISE_TRY(zero_out->resize(result_sizes));
  const View scales = view_of(*scale_out), zeros = view_of(*zero_out);
  if (!is_floating(scales.type) || !is_computable(zeros.type) || scales.numel() != blocks.count) {
    return context.fail(Code::kInvalidProgram, "scales must be floating; got %s",
                        scale_out->describe().c_str());
  }
  for (int64_t block = 0; block < blocks.count; ++block) {
    const Choice choice = choose(extremes[block], range, eps, rule);
    store<float>(scales.type, &choice.scale, 1, scales.at(block), 1);
    if (is_floating(zeros.type)) {
      store<double>(zeros.type, &choice.zero, 1, zeros.at(block), 1);
    } else {
      const auto zero = static_cast<int64_t>(choice.zero);
      store<int64_t>(zeros.type, &zero, 1, zeros.at(block), 1);
    }
  }
  return context.status();
}

// choose_qparams(input, quant_min, quant_max, eps, dtype)
template <Rule kRule>
Status choose_tensor(KernelContext& context) {
  const Tensor* input = context.tensor(0);
  const Range range{context.number(1), context.number(2)};
  const auto eps = static_cast<float>(context.number(3));
  if (!context.ok()) return context.status();
  Blocks blocks;
  EDGEWISE_TRY(make_blocks(*input, Dims(input->sizes()), &blocks));
  const int64_t one[] = {1};
  return choose_blocks(context, *input, blocks, range, eps, kRule, 5, Dims(one));
}

// choose_qparams_per_token(input, dtype)
template <Rule kRule>
Status choose_tokens(KernelContext& context) {
  const Tensor* input = context.tensor(0);
  if (!context.ok()) return context.status();
  Blocks blocks;
  EDGEWISE_RETURN_IF_ERROR(blocks_of(Shape::kToken, context, *input, 0, &blocks));
  Dims sizes{input->sizes()};
  if (sizes.size() > 0) sizes[sizes.size() - 1] = 1;
  return choose_blocks(context, *input, blocks, {-128, 127}, std::numeric_limits<float>::epsilon(),
                       kRule, 2, sizes);
}

// choose_qparams_affine(input, mapping_type, block_size, target_dtype, quant_min, quant_max, eps,
//                       scale_dtype, zero_point_dtype, keepdim)
Status choose_affine(KernelContext& context) {
  const Tensor* input = context.tensor(0);
  const std::string_view mapping = context.string(1);
  const std::optional<double> low = context.optional_number(4);
  const std::optional<double> high = context.optional_number(5);
  const std::optional<double> eps = context.optional_number(6);
  const bool keeps_dims = context.boolean(9);
  if (!context.ok()) return context.status();
  if ((mapping != "ASYMMETRIC" && mapping != "SYMMETRIC") || !low || !high) {
    return context.fail(Code::kUnsupported,
                        "mapping_type must be ASYMMETRIC or SYMMETRIC, with quant_min and "
                        "quant_max; got %.*s",
                        static_cast<int>(mapping.size()), mapping.data());
  }
  Blocks blocks;
  EDGEWISE_RETURN_IF_ERROR(blocks_of(Shape::kAffine, context, *input, 2, &blocks));
  Dims sizes;
  for (size_t dim = 0; dim < blocks.sizes.size(); ++dim) {
    // Dimensions of one block are dropped unless they are kept.
    const bool is_kept = keeps_dims || blocks.at(dim) != 1 || blocks.block[dim] == 1;
    if (is_kept) sizes.push(blocks.at(dim));
  }
  const Rule rule = mapping == "SYMMETRIC" ? Rule::kSymmetric : Rule::kAsymmetric;
  const bool is_half = input->type() == ScalarType::kHalf;
  const double smallest_normal = is_half ? 0x1p-14 : std::numeric_limits<float>::min();
  const auto least = static_cast<float>(eps.value_or(smallest_normal));
  return choose_blocks(context, *input, blocks, {*low, *high}, least, rule, 10, sizes);
}

#define QD "quantized_decomposed::"
constexpr KernelEntry kKernels[] = {
    {QD "choose_qparams.Tensor_out", 7, choose_tensor<Rule::kAsymmetric>},
    {QD "choose_qparams_symmetric.Tensor_out", 7, choose_tensor<Rule::kSymmetric>},
    {QD "choose_qparams_per_token.out", 4, choose_tokens<Rule::kSymmetricTokens>},
    {QD "choose_qparams_per_token_asymmetric.out", 4, choose_tokens<Rule::kBestZero>},
    {"torchao::choose_qparams_affine.out", 12, choose_affine},
};
const KernelTable table(kEveryLevel, kSelected<kKernels>);
#undef QD

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace edgewise
