// Kernels: the operators that the runtime computes itself.
//
// A kernel is registered under its ATen out-variant's name ("aten::add.out") and gets
// the arguments of that schema in order. As in files of ExecuTorch, the returned values
// follow the arguments, and are the same table entries as the `out` arguments.
//
//   Status add_out(KernelContext& context) {
//     const Tensor* a = context.tensor(0);
//     ...
//     Tensor* out = context.out(3);
//     if (!context.ok()) return context.status();
//     EDGEWISE_RETURN_IF_ERROR(out->resize(...));
//     ...
//     return Status::ok_status();
//   }
//   static const KernelRegistration registration("aten::add.out", 4, add_out);
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "edgewise/status.h"
#include "edgewise/value.h"
#include "edgewise/workers.h"

namespace edgewise {

// A number whose type matters for promotion (schema type `Scalar`).
struct Scalar {
  enum class Kind : uint8_t { kBool, kInt, kDouble } kind = Kind::kInt;
  int64_t i = 0;  // also holds a bool
  double d = 0;
  template <typename T>
  T to() const {
    return kind == Kind::kDouble ? static_cast<T>(d) : static_cast<T>(i);
  }
};

// Typed access to the arguments of one call. An accessor that finds another kind of
// value records a failure (the first one stays) and returns null or a default, so a
// kernel reads everything and then checks ok() once. A file is untrusted: index and
// kind are always checked.
class KernelContext {
 public:
  KernelContext(std::string_view op, std::span<Value* const> arguments, Workers* workers = nullptr)
      : op_(op), arguments_(arguments), workers_(workers) {}

  std::string_view op() const { return op_; }
  // For `for_each`; may be null.
#ifdef EDGEWISE_BARE_METAL
  Workers* workers() const { return nullptr; }
#else
  Workers* workers() const { return workers_; }
#endif
  size_t size() const { return arguments_.size(); }
  Value* value(size_t index);  // null and failed if out of range

  const Tensor* tensor(size_t index);           // data pointer set
  const Tensor* optional_tensor(size_t index);  // null for None
  Tensor* out(size_t index);                    // writable: resize, then write
  int64_t integer(size_t index);
  double number(size_t index);  // int, float or bool
  bool boolean(size_t index);
  Scalar scalar(size_t index);
  std::optional<int64_t> optional_integer(size_t index);
  std::optional<double> optional_number(size_t index);
  std::optional<bool> optional_boolean(size_t index);
  std::optional<Scalar> optional_scalar(size_t index);
  std::vector<int64_t> int_list(size_t index);  // also takes one integer
  std::optional<std::vector<int64_t>> optional_int_list(size_t index);
  std::optional<std::vector<double>> optional_double_list(size_t index);
  std::vector<const Tensor*> tensor_list(size_t index);  // null items for None
  std::string_view string(size_t index);
  std::optional<ScalarType> optional_scalar_type(size_t index);

  bool ok() const { return status_.ok(); }
  Status status() const { return status_; }
  // Records "[op] message" unless something failed before; returns the status.
  Status fail(Code code, const char* format, ...) EDGEWISE_FORMAT(3, 4);

 private:
  std::string_view op_;
  std::span<Value* const> arguments_;
  Workers* workers_;
  Status status_;
};

using KernelFunction = Status (*)(KernelContext& context);

struct Kernel {
  std::string name;       // "aten::add.out"
  size_t argument_count;  // of the out-variant's schema, `out` included, returns not
  std::function<Status(KernelContext& context)> function;
};

// Registers once per name (those of a shared library: see kernel_library.h); a second registration
// of a name fails.
Status register_kernel(Kernel kernel);
// Null if there is none.
const Kernel* find_kernel(std::string_view name);
// Sorted by name.
std::vector<std::string> kernel_names();

class KernelRegistration {
 public:
  KernelRegistration(const char* name, size_t argument_count, KernelFunction function);
};

}  // namespace edgewise
