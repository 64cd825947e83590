// Loops over an image's pixels: planes become pixels of neighbouring channels.
#pragma once

#include <cstddef>
#include <cstdint>

namespace edgewise::xnnpack {

struct PixelQuantizer {
  float steps;      // in a unit
  float low, high;  // of a number in steps, before the zero point
  int32_t zero_point;
};

// to[i] = the nearest step of from[i], ties to even; NaN becomes the highest.
void quantize_pixels(const float* from, size_t count, const PixelQuantizer& quantizer, uint8_t* to);

// to[i * channels + c] = planes[c * stride + i]. Fast for 2 to 4 channels.
void interleave(const uint8_t* planes, size_t stride, size_t channels, size_t count, uint8_t* to);
void interleave(const float* planes, size_t stride, size_t channels, size_t count, float* to);

}  // namespace edgewise::xnnpack
