// Numbers and shapes for tests.
#pragma once

#include <initializer_list>
#include <random>
#include <vector>

#include "backends/xnnpack/shape.h"

namespace edgewise::xnnpack {

using Floats = std::vector<float>;

inline Floats random_floats(size_t count, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  Floats result(count);
  for (float& x : result) x = normal(engine);
  return result;
}

inline Shape shape_of(std::initializer_list<size_t> sizes) {
  Shape shape;
  for (size_t size : sizes) shape[shape.rank++] = size;
  return shape;
}

}  // namespace edgewise::xnnpack
