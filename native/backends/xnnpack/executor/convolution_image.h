// What convolutions read that are GEMMs of their input as it lies: of a window, what is in one row
// of the image lies side by side. The image, or a copy with padding.
#pragma once

#include <algorithm>

#include "backends/xnnpack/executor/parallel.h"
#include "backends/xnnpack/graph.h"

namespace edgewise::xnnpack {

class ConvolutionImage {
 public:
  explicit ConvolutionImage(const Window& window) : window_(window) {}

  // `spare`: a copy has so many elements more, which may be read. `needs_copy`: without padding,
  // too.
  void reshape(const Shape& in, const Shape& out, size_t spare, bool needs_copy) {
    const Window& w = window_;
    height_ = in[1];
    width_ = in[2];
    channels_ = in[3];
    spare_ = spare;
    copies_ = needs_copy || (w.pad_top | w.pad_right | w.pad_bottom | w.pad_left) != 0;
    rows_ = copies_ ? (out[1] - 1) * w.stride[0] + w.kernel[0] : height_;
    const size_t read = (out[2] - 1) * w.stride[1] + w.kernel[1];
    row_size_ = (copies_ ? std::max(read, w.pad_left + width_) : width_) * channels_;
  }
  bool copies() const { return copies_; }
  size_t elements() const { return height_ * width_ * channels_; }
  size_t channels() const { return channels_; }
  // Elements from one row of what is read to the next.
  size_t row_size() const { return row_size_; }
  // Elements of the copy.
  size_t copied() const { return copies_ ? rows_ * row_size_ + spare_ : 0; }

  // What is to be read: `image`, or `copy`, which gets it; `zero` is around.
  template <typename T>
  const T* read(const T* image, T zero, T* copy, pthreadpool_t threads) const {
    if (!copies_) return image;
    write_copy(image, zero, copy, threads,
               [](const T* from, size_t count, T* to) { std::copy_n(from, count, to); });
    return copy;
  }
  // Into the copy, by `copy_row(from, count, to)`, which may make other numbers of them.
  template <typename From, typename To, typename CopyRow>
  void write_copy(const From* image, To zero, To* copy, pthreadpool_t threads,
                  CopyRow copy_row) const {
    parallel_for(threads, rows_, [&](size_t y, size_t) {
      if (y % window_.stride[0] >= window_.kernel[0]) return;  // no window has it
      write_row(image, y, zero, copy + y * row_size_, copy_row);
    });
    std::fill_n(copy + rows_ * row_size_, spare_, zero);
  }
  // Row `y` of the copy, to `to`.
  template <typename From, typename To, typename CopyRow>
  void write_row(const From* image, size_t y, To zero, To* to, CopyRow copy_row) const {
    // Rows before the image wrap around to beyond it.
    y -= window_.pad_top;
    if (y >= height_) {
      std::fill_n(to, row_size_, zero);
      return;
    }
    const size_t before = window_.pad_left * channels_, count = width_ * channels_;
    std::fill_n(to, before, zero);
    copy_row(image + y * count, count, to + before);
    std::fill(to + before + count, to + row_size_, zero);
  }

 private:
  const Window window_;
  size_t height_ = 0, width_ = 0, channels_ = 0;
  size_t rows_ = 0, row_size_ = 0, spare_ = 0;
  bool copies_ = false;
};

}  // namespace edgewise::xnnpack
