// Kernels of a user's operators, as docs/custom-operators.md shows them.
#include "edgewise/kernel_library.h"

namespace {

using edgewise::Code;
using edgewise::KernelContext;
using edgewise::ScalarType;
using edgewise::Status;
using edgewise::Tensor;

// edgewise_test::axpb(Tensor x, float a, float b) -> Tensor
Status axpb_out(KernelContext& context) {
  const Tensor* x = context.tensor(0);
  const double a = context.number(1), b = context.number(2);
  Tensor* out = context.out(3);
  if (!context.ok()) return context.status();
  if (x->type() != ScalarType::kFloat || out->type() != ScalarType::kFloat) {
    return context.fail(Code::kUnsupported, "computes in float32; got %s", x->describe().c_str());
  }
  EDGEWISE_RETURN_IF_ERROR(out->resize(x->sizes()));
  const float* from = x->data<float>();
  float* to = out->data<float>();
  for (int64_t i = 0; i < x->numel(); ++i) {
    to[i] = static_cast<float>(a * static_cast<double>(from[i]) + b);
  }
  return Status::ok_status();
}

}  // namespace

EDGEWISE_REGISTER_KERNEL("edgewise_test::axpb.out", 4, axpb_out)
