// What kernel_library.h and backend_library.h share: a running program and a library that it loads
// compare the layouts of the types that cross the border between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace edgewise {

// Sizes (and alignments) of types, folded into one number (FNV-1a).
constexpr uint32_t library_layout_of(std::initializer_list<size_t> sizes) {
  uint32_t layout = 2166136261u;
  for (const size_t size : sizes) layout = (layout ^ static_cast<uint32_t>(size)) * 16777619u;
  return layout;
}

}  // namespace edgewise

#define EDGEWISE_JOIN_NAMES_(a, b) a##b
#define EDGEWISE_JOIN_NAMES(a, b) EDGEWISE_JOIN_NAMES_(a, b)
