// Parts of a dimension by index: index_select.
#include <cstring>
#include <string>

#include "cpu_dispatch.h"
#include "indices.h"
#include "kernel_status.h"
#include "view.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

Status index_select(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  int64_t dim = context.integer(1);
  const Tensor* index = context.tensor(2);
  Tensor* out = output(context, 3);
  if (!context.ok()) return context.status();
  EDGEWISE_TRY(normalize_dim(dim, self->rank()));
  if (index->rank() > 1 || out->type() != self->type()) {
    return context.fail(Code::kInvalidArgument,
                        "the index has at most one dimension, and types are equal; got %s, %s, %s",
                        index->describe().c_str(), self->describe().c_str(),
                        out->describe().c_str());
  }
  View source = view_of(*self);
  if (self->rank() == 0) {
    source.sizes.push(1);
    source.strides.push(1);
  }
  const size_t along = static_cast<size_t>(dim);
  Indices indices;
  EDGEWISE_TRY(indices.read(*index, source.sizes[along], Indices::Negative::kRefused));
  Dims sizes(self->sizes());
  if (self->rank() > 0) sizes[along] = indices.count();
  EDGEWISE_TRY(out->resize(sizes));
  View target = view_of(*out);
  if (self->rank() == 0) {
    target.sizes.push(1);
    target.strides.push(1);
  }
  if (source.is_row_major() && target.is_row_major()) {
    const int64_t count = std::min(indices.count(), target.sizes[along]);
    return finish(context, indices.gather(source, along, count, target.data));
  }
  for (int64_t i = 0; i < indices.count() && i < target.sizes[along]; ++i) {
    EDGEWISE_TRY(assign(target.select(along, i), source.select(along, indices[i])));
  }
  return context.status();
}

constexpr KernelEntry kKernels[] = {
    {"aten::index_select.out", 4, index_select},
};
const KernelTable table(kEveryLevel, kSelected<kKernels>);

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace edgewise
