// Frames made of the image itself: reflection and replication; and patches of images as
// columns and back: im2col, col2im.
#include <cstring>

#include "cpu_dispatch.h"
#include "windows.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

Status pad(KernelContext& context, size_t spatial, bool reflect) {
  const Tensor* self = context.tensor(0);
  const std::vector<int64_t> padding = context.int_list(1);
  Tensor* out = output(context, 2);
  if (!context.ok()) return context.status();
  const size_t rank = self->rank();
  bool fits = (rank == spatial + 1 || rank == spatial + 2) && padding.size() == 2 * spatial &&
              out->type() == self->type();
  Dims sizes(self->sizes());
  for (size_t i = 0; fits && i < spatial; ++i) {  // the last dimension's padding comes first
    const int64_t size = self->size(rank - 1 - i);
    const int64_t before = padding[2 * i], after = padding[2 * i + 1];
    const int64_t limit = reflect ? size - 1 : kSpatialLimit;
    fits = size > 0 && size < kSpatialLimit && before <= limit && after <= limit &&
           before > -kSpatialLimit && after > -kSpatialLimit && size + before + after > 0;
    sizes[rank - 1 - i] = size + before + after;
  }
  if (!fits) {
    return context.fail(Code::kInvalidArgument,
                        "a frame leaves an image, and a reflected one is smaller than it; got %s "
                        "for %s",
                        describe(padding).c_str(), self->describe().c_str());
  }
  EDGEWISE_TRY(out->resize(sizes));
  if (out->numel() == 0) return context.status();
  const View from = spatial_view(view_of(*self), spatial);
  const View to = spatial_view(view_of(*out), spatial);
  Scratch<int64_t> sources[3];
  for (size_t dim = 0; dim < 3; ++dim) {
    const int64_t size = from.sizes[2 + dim], count = to.sizes[2 + dim];
    const int64_t before = dim < 3 - spatial ? 0 : padding[2 * (2 - dim)];
    EDGEWISE_TRY(sources[dim].reserve(count));
    for (int64_t o = 0; o < count; ++o) {
      int64_t i = o - before;
      if (reflect && i < 0) i = -i;
      if (reflect && i >= size) i = 2 * (size - 1) - i;
      sources[dim][o] = std::clamp<int64_t>(i, 0, size - 1) * from.strides[2 + dim];
    }
  }
  // Of each row, the image's own part is copied at once where neighbours are neighbours.
  const int64_t width = to.sizes[4], before = padding[0];
  const bool plain = from.strides[4] == 1 && to.strides[4] == 1;
  const int64_t begin = plain ? std::clamp<int64_t>(before, 0, width) : width;
  const int64_t end = plain ? std::clamp<int64_t>(before + from.sizes[4], begin, width) : width;
  const size_t size = element_size(self->type());
  const auto edge = [&](const std::byte* row, std::byte* result, int64_t first, int64_t last) {
    for (int64_t w = first; w < last; ++w) {
      const auto at = [size](int64_t elements) { return elements * static_cast<int64_t>(size); };
      const std::byte* source = row + at(sources[2][w]);
      std::byte* target = result + at(w * to.strides[4]);
      if (size == 4) {
        std::memcpy(target, source, 4);
      } else if (size == 1) {
        *target = *source;
      } else if (size == 2) {
        std::memcpy(target, source, 2);
      } else {
        std::memcpy(target, source, 8);
      }
    }
  };
  for_planes(to.sizes, [&](int64_t n, int64_t c) {
    const int64_t plane = plane_offset(from.strides, n, c);
    const int64_t result = plane_offset(to.strides, n, c);
    for (int64_t d = 0; d < to.sizes[2]; ++d) {
      for (int64_t h = 0; h < to.sizes[3]; ++h) {
        const std::byte* row = from.at(plane + sources[0][d] + sources[1][h]);
        std::byte* target = to.at(result + pixel_offset(to.strides, d, h, 0));
        edge(row, target, 0, begin);
        if (end > begin) {
          std::memcpy(target + static_cast<size_t>(begin) * size,
                      row + static_cast<size_t>(begin - before) * size,
                      static_cast<size_t>(end - begin) * size);
        }
        edge(row, target, end, width);
      }
    }
  });
  return context.status();
}

template <size_t kSpatial, bool kReflect>
Status pad(KernelContext& context) {
  return pad(context, kSpatial, kReflect);
}

struct Patches {
  Triple size{1, 1, 1}, kernel{1, 1, 1}, dilation{1, 1, 1}, padding{0, 0, 0}, stride{1, 1, 1};
  Triple count{1, 1, 1};  // of patches

  // Arguments kernel_size, dilation, padding, stride from `index` on.
  Status read(KernelContext& context, size_t index) {
    const auto kernels = context.int_list(index), dilations = context.int_list(index + 1),
               paddings = context.int_list(index + 2), strides = context.int_list(index + 3);
    if (!context.ok()) return context.status();
    EDGEWISE_RETURN_IF_ERROR(set_spatial(kernel, 2, 1, kernels, "kernel_size"));
    EDGEWISE_RETURN_IF_ERROR(set_spatial(dilation, 2, 1, dilations, "dilation"));
    EDGEWISE_RETURN_IF_ERROR(set_spatial(padding, 2, 0, paddings, "padding"));
    EDGEWISE_RETURN_IF_ERROR(set_spatial(stride, 2, 1, strides, "stride"));
    for (size_t dim = 1; dim < 3; ++dim) {
      const int64_t room = size[dim] + 2 * padding[dim] - dilation[dim] * (kernel[dim] - 1) - 1;
      if (size[dim] >= kSpatialLimit || room < 0) {
        return error(Code::kInvalidArgument, "a patch fits into the padded image of %s",
                     describe(size).c_str());
      }
      count[dim] = room / stride[dim] + 1;
    }
    return {};
  }

  // Calls f(row of the columns, position in it, image row, image column, n) for runs inside the
  // image: the n positions are neighbours, their image columns stride[2] apart.
  template <typename F>
  void each(F&& f) const {
    for (int64_t i = 0; i < kernel[1] * kernel[2]; ++i) {
      const int64_t w = i % kernel[2] * dilation[2] - padding[2];  // of the first position
      const int64_t begin = w < 0 ? (-w - 1) / stride[2] + 1 : 0;
      const int64_t end = w < size[2] ? std::min(count[2], (size[2] - 1 - w) / stride[2] + 1) : 0;
      if (begin >= end) continue;
      for (int64_t row = 0; row < count[1]; ++row) {
        const int64_t h = row * stride[1] - padding[1] + i / kernel[2] * dilation[1];
        if (h < 0 || h >= size[1]) continue;
        f(i, row * count[2] + begin, h, w + begin * stride[2], end - begin);
      }
    }
  }
};

// [N, rows, positions] of columns, N of 1 where there is none.
View columns_view(View view) {
  if (view.sizes.size() == 2) {
    view.sizes.insert(0, 1);
    view.strides.insert(0, 0);
  }
  return view;
}

Status im2col(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  Tensor* out = output(context, 5);
  if (!context.ok()) return context.status();
  EDGEWISE_TRY(check_image(*self, 2, *out));
  Patches patches;
  patches.size = {1, self->size(self->rank() - 2), self->size(self->rank() - 1)};
  EDGEWISE_TRY(patches.read(context, 1));
  const int64_t taps = patches.kernel[1] * patches.kernel[2];
  Dims sizes;
  if (self->rank() == 4) sizes.push(self->size(0));
  int64_t rows = 0;
  if (__builtin_mul_overflow(self->size(self->rank() - 3), taps, &rows)) rows = -1;
  sizes.push(rows);
  sizes.push(patches.count[1] * patches.count[2]);
  EDGEWISE_TRY(to_sizes(std::vector<int64_t>(sizes.span().begin(), sizes.span().end()), sizes));
  EDGEWISE_TRY(out->resize(sizes));
  EDGEWISE_TRY(fill(view_of(*out), Scalar{}));
  const View from = spatial_view(view_of(*self), 2), to = columns_view(view_of(*out));
  const size_t bytes = element_size(self->type());
  for_planes(from.sizes, [&](int64_t n, int64_t c) {
    const int64_t plane = plane_offset(from.strides, n, c);
    const int64_t column = n * to.strides[0] + c * taps * to.strides[1];
    patches.each([&](int64_t i, int64_t p, int64_t h, int64_t w, int64_t count) {
      std::byte* target = to.at(column + i * to.strides[1] + p * to.strides[2]);
      const std::byte* source = from.at(plane + pixel_offset(from.strides, 0, h, w));
      const int64_t step = from.strides[4] * patches.stride[2];
      if (to.strides[2] == 1) return gather(bytes, source, step, count, target);
      for (int64_t j = 0; j < count; ++j) {
        std::memcpy(target + j * to.strides[2] * static_cast<int64_t>(bytes),
                    source + j * step * static_cast<int64_t>(bytes), bytes);
      }
    });
  });
  return context.status();
}

Status col2im(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const std::vector<int64_t> wanted = context.int_list(1);
  Tensor* out = output(context, 6);
  if (!context.ok()) return context.status();
  Patches patches;
  EDGEWISE_TRY(set_spatial(patches.size, 2, 1, wanted, "output_size"));
  EDGEWISE_TRY(patches.read(context, 2));
  const size_t rank = self->rank();
  const int64_t taps = patches.kernel[1] * patches.kernel[2];
  if ((rank != 2 && rank != 3) || out->type() != self->type() || !is_computable(self->type()) ||
      self->size(rank - 2) % taps != 0 ||
      self->size(rank - 1) != patches.count[1] * patches.count[2]) {
    return context.fail(Code::kInvalidArgument,
                        "takes [N, C * kernel, positions] and an output of its type; got %s",
                        self->describe().c_str());
  }
  Dims sizes;
  if (rank == 3) sizes.push(self->size(0));
  for (int64_t size : {self->size(rank - 2) / taps, patches.size[1], patches.size[2]}) {
    sizes.push(size);
  }
  EDGEWISE_TRY(to_sizes(std::vector<int64_t>(sizes.span().begin(), sizes.span().end()), sizes));
  EDGEWISE_TRY(out->resize(sizes));
  if (out->numel() == 0) return context.status();
  return with_compute_type(self->type(), [&](auto c) -> Status {
    using C = decltype(c);
    ComputeInput<C> x;
    EDGEWISE_TRY(x.read(columns_view(view_of(*self))));
    View to = spatial_view(view_of(*out), 2);
    Scratch<C> sums;
    EDGEWISE_TRY(sums.reserve(out->numel()));
    std::fill_n(sums.data(), out->numel(), C(0));
    const Dims strides = contiguous_strides(to.sizes);
    for_planes(to.sizes, [&](int64_t n, int64_t channel) {
      C* plane = sums.data() + plane_offset(strides, n, channel);
      const C* column = x.data + n * x.strides[0] + channel * taps * x.strides[1];
      patches.each([&](int64_t i, int64_t p, int64_t h, int64_t w, int64_t count) {
        C* sums_of_run = plane + pixel_offset(strides, 0, h, w);
        const C* terms = column + i * x.strides[1] + p * x.strides[2];
        const int64_t step = patches.stride[2] * strides[4];
        EDGEWISE_INDEPENDENT
        for (int64_t j = 0; j < count; ++j) {
          sums_of_run[j * step] = wrap_add(sums_of_run[j * step], terms[j * x.strides[2]]);
        }
      });
    });
    return finish(context, assign(to, {reinterpret_cast<std::byte*>(sums.data()), kTypeOf<C>,
                                       to.sizes, strides}));
  });
}

constexpr KernelEntry kKernels[] = {
    {"aten::reflection_pad1d.out", 3, pad<1, true>},
    {"aten::reflection_pad2d.out", 3, pad<2, true>},
    {"aten::reflection_pad3d.out", 3, pad<3, true>},
    {"aten::replication_pad1d.out", 3, pad<1, false>},
    {"aten::replication_pad2d.out", 3, pad<2, false>},
    {"aten::replication_pad3d.out", 3, pad<3, false>},
    {"aten::im2col.out", 6, im2col},
    {"aten::col2im.out", 7, col2im},
};
const KernelTable table(kEveryLevel, kSelected<kKernels>);

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace edgewise
