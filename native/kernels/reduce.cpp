#include "reduce.h"

namespace edgewise {
inline namespace EDGEWISE_TARGET {

Status plan_reduction(const Tensor& self, std::span<const int64_t> dims, bool keepdim, Tensor* out,
                      Reduction& plan) {
  if (!is_computable(self.type())) {
    return error(Code::kUnsupported, "computes on floating, integer and bool types; got %s",
                 self.describe().c_str());
  }
  uint32_t reduced = dims.empty() ? ~0u : 0;
  for (int64_t dim : dims) {
    EDGEWISE_RETURN_IF_ERROR(normalize_dim(dim, self.rank()));
    if (reduced & (1u << dim)) {
      return error(Code::kInvalidArgument, "a dimension is reduced once; got %s",
                   describe(dims).c_str());
    }
    reduced |= 1u << dim;
  }
  plan.input = view_of(self);
  Dims shape;
  for (size_t dim = 0; dim < self.rank(); ++dim) {
    const bool goes = reduced & (1u << dim);
    (goes ? plan.reduced_sizes : plan.kept_sizes).push(plan.input.sizes[dim]);
    (goes ? plan.reduced_strides : plan.kept_strides).push(plan.input.strides[dim]);
    if (!goes || keepdim) shape.push(goes ? 1 : plan.input.sizes[dim]);
  }
  EDGEWISE_RETURN_IF_ERROR(out->resize(shape));
  for (size_t dim = 0, place = 0; dim < self.rank(); ++dim) {
    const bool goes = reduced & (1u << dim);
    if (!goes) plan.out_strides.push(out->strides()[place]);
    if (!goes || keepdim) ++place;
  }
  return {};
}

}  // namespace EDGEWISE_TARGET
}  // namespace edgewise
