// Failures of helpers, told under the operator's name.
#pragma once

#include "edgewise/kernel.h"
#include "view.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {

// Records a helper's failure in the context, which puts the operator's name before it.
inline Status finish(KernelContext& context, const Status& status) {
  if (!status.ok()) return context.fail(status.code(), "%s", status.message().c_str());
  return context.status();
}

inline constexpr size_t kNoArgument = SIZE_MAX;
inline constexpr size_t kSelf = 0;

// The output argument `index`. A file could name one value as an output and an input;
// resizing the one would pull the other's memory away, so that is refused. It may be argument
// `updated` (and no other) where the kernel updates that tensor in place, and keeps its shape.
inline Tensor* output(KernelContext& context, size_t index, size_t updated = kNoArgument) {
  Tensor* tensor = context.out(index);
  if (!tensor) return nullptr;
  const Value* value = context.value(index);
  bool reused = false;
  for (size_t i = 0; i < index; ++i) {
    if (i == updated) continue;
    const Value* other = context.value(i);
    if (!other) return nullptr;
    reused = reused || other == value;
    if (const TensorList* list = other->get<TensorList>()) {
      for (const Value* item : list->items) reused = reused || item == value;
    }
  }
  if (!reused) return tensor;
  (void)context.fail(Code::kInvalidProgram, "argument %zu is an output and an input at once",
                     index);
  return nullptr;
}

// What an update of `self` starts from: its contents in `out`, which costs nothing in place.
inline Status start_from(const Tensor& self, Tensor* out) {
  return out == &self ? Status() : copy_to(out, view_of(self));
}

}  // namespace HWY_NAMESPACE
}  // namespace edgewise

// Returns from a kernel if a helper failed; `context` is in scope.
#define EDGEWISE_TRY(expression)                                                \
  do {                                                                          \
    const ::edgewise::Status edgewise_try_ = (expression);                      \
    if (!edgewise_try_.ok()) return ::edgewise::finish(context, edgewise_try_); \
  } while (false)
