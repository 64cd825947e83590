#include "backends/xnnpack/image_loops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/xnnpack/image_loops.cpp"
#include "core/simd_foreach.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace edgewise::xnnpack {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

void quantize(const float* from, size_t count, const PixelQuantizer& quantizer, uint8_t* to) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> integers;
  const hn::RebindToUnsigned<decltype(d)> words;
  const hn::Rebind<uint8_t, decltype(d)> bytes;
  const auto steps = hn::Set(d, quantizer.steps);
  const auto low = hn::Set(d, quantizer.low), high = hn::Set(d, quantizer.high);
  const auto zero_point = hn::Set(integers, quantizer.zero_point);
  const auto quantized = [&](auto x) HWY_ATTR {
    x = hn::Mul(x, steps);
    x = hn::IfThenElse(hn::Lt(x, high), x, high);  // NaN, too
    x = hn::IfThenElse(hn::Gt(x, low), x, low);
    return hn::TruncateTo(bytes, hn::BitCast(words, hn::Add(hn::NearestInt(x), zero_point)));
  };
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(quantized(hn::LoadU(d, from + i)), bytes, to + i);
  if (i < count) hn::StoreN(quantized(hn::LoadN(d, from + i, count - i)), bytes, to + i, count - i);
}

template <size_t kChannels, typename T>
HWY_INLINE void interleave_channels(const T* planes, size_t stride, size_t count, T* to) {
  const hn::ScalableTag<T> d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto first = hn::LoadU(d, planes + i), second = hn::LoadU(d, planes + stride + i);
    if constexpr (kChannels == 2) {
      hn::StoreInterleaved2(first, second, d, to + i * 2);
    } else {
      const auto third = hn::LoadU(d, planes + 2 * stride + i);
      if constexpr (kChannels == 3) {
        hn::StoreInterleaved3(first, second, third, d, to + i * 3);
      } else {
        const auto fourth = hn::LoadU(d, planes + 3 * stride + i);
        hn::StoreInterleaved4(first, second, third, fourth, d, to + i * 4);
      }
    }
  }
  for (; i < count; ++i) {
    for (size_t c = 0; c < kChannels; ++c) to[i * kChannels + c] = planes[c * stride + i];
  }
}

template <typename T>
HWY_INLINE void interleave_any(const T* planes, size_t stride, size_t channels, size_t count,
                               T* to) {
  switch (channels) {
    case 2:
      return interleave_channels<2>(planes, stride, count, to);
    case 3:
      return interleave_channels<3>(planes, stride, count, to);
    case 4:
      return interleave_channels<4>(planes, stride, count, to);
    default:
      for (size_t c = 0; c < channels; ++c) {
        for (size_t i = 0; i < count; ++i) to[i * channels + c] = planes[c * stride + i];
      }
  }
}

void interleave_bytes(const uint8_t* planes, size_t stride, size_t channels, size_t count,
                      uint8_t* to) {
  interleave_any(planes, stride, channels, count, to);
}

void interleave_floats(const float* planes, size_t stride, size_t channels, size_t count,
                       float* to) {
  interleave_any(planes, stride, channels, count, to);
}

}  // namespace HWY_NAMESPACE
}  // namespace edgewise::xnnpack
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace edgewise::xnnpack {

HWY_EXPORT(quantize);
HWY_EXPORT(interleave_bytes);
HWY_EXPORT(interleave_floats);

void quantize_pixels(const float* from, size_t count, const PixelQuantizer& quantizer,
                     uint8_t* to) {
  HWY_DYNAMIC_DISPATCH(quantize)(from, count, quantizer, to);
}

void interleave(const uint8_t* planes, size_t stride, size_t channels, size_t count, uint8_t* to) {
  HWY_DYNAMIC_DISPATCH(interleave_bytes)(planes, stride, channels, count, to);
}

void interleave(const float* planes, size_t stride, size_t channels, size_t count, float* to) {
  HWY_DYNAMIC_DISPATCH(interleave_floats)(planes, stride, channels, count, to);
}

}  // namespace edgewise::xnnpack
#endif
