// Index tensors, read to int64 and checked.
#pragma once

#include "view.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {

class Indices {
 public:
  enum class Negative : uint8_t { kRefused, kFromEnd };

  // Reads the elements of an int32 or int64 tensor in row-major order; each must be
  // within a dimension of `size`.
  Status read(const Tensor& tensor, int64_t size, Negative negative);

  // Moves what the first `count` indices name: of `source`, which lies in order, as does `target`,
  // the parts along dimension `along`.
  Status gather(const View& source, size_t along, int64_t count, std::byte* target) const;

  int64_t count() const { return count_; }
  const int64_t* data() const { return values_.data(); }
  int64_t operator[](int64_t i) const { return values_[i]; }

 private:
  Scratch<int64_t> values_;
  int64_t count_ = 0;
};

}  // namespace HWY_NAMESPACE
}  // namespace edgewise
