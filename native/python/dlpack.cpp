#include "dlpack.h"

#include <algorithm>
#include <optional>

#include "errors.h"

namespace nb = nanobind;

namespace edgewise::python {
namespace {

// Layouts of the format, versions 0 and 1.
struct DlTensor {
  void* data;
  int32_t device_type;
  int32_t device_id;
  int32_t ndim;
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
  int64_t* shape;
  int64_t* strides;  // in elements; null: dense
  uint64_t byte_offset;
};

struct Managed {
  DlTensor tensor;
  void* context;
  void (*deleter)(Managed*);
};

struct ManagedVersioned {
  uint32_t major;
  uint32_t minor;
  void* context;
  void (*deleter)(ManagedVersioned*);
  uint64_t flags;
  DlTensor tensor;
};

constexpr int32_t kCpu = 1;
constexpr int32_t kCudaHost = 3;  // pinned, readable by the CPU
constexpr int32_t kRocmHost = 11;

// Flags of version 1: the memory must not be written, or is a copy that nobody else sees.
constexpr uint64_t kReadOnly = 1;
constexpr uint64_t kIsCopied = 2;

enum TypeCode : uint8_t { kInt = 0, kUInt = 1, kFloat = 2, kBfloat = 4, kBool = 6 };

std::string device_name(int64_t type) {
  switch (type) {
    case 2:
      return "a CUDA device";
    case 8:
      return "a Metal device";
    case 10:
      return "a ROCm device";
    default:
      return "a device of DLPack type " + std::to_string(type);
  }
}

bool is_on_cpu(int64_t type) { return type == kCpu || type == kCudaHost || type == kRocmHost; }

[[noreturn]] void refuse_device(const std::string& where, int64_t type) {
  refuse(where, "must lie in CPU memory; got " + device_name(type) + "; try .cpu()");
}

std::optional<ScalarType> scalar_type(const DlTensor& tensor) {
  if (tensor.lanes != 1) return std::nullopt;
  switch (tensor.code << 8 | tensor.bits) {
    case kInt << 8 | 8:
      return ScalarType::kChar;
    case kInt << 8 | 16:
      return ScalarType::kShort;
    case kInt << 8 | 32:
      return ScalarType::kInt;
    case kInt << 8 | 64:
      return ScalarType::kLong;
    case kUInt << 8 | 8:
      return ScalarType::kByte;
    case kUInt << 8 | 16:
      return ScalarType::kUInt16;
    case kUInt << 8 | 32:
      return ScalarType::kUInt32;
    case kUInt << 8 | 64:
      return ScalarType::kUInt64;
    case kFloat << 8 | 16:
      return ScalarType::kHalf;
    case kFloat << 8 | 32:
      return ScalarType::kFloat;
    case kFloat << 8 | 64:
      return ScalarType::kDouble;
    case kBfloat << 8 | 16:
      return ScalarType::kBFloat16;
    case kBool << 8 | 8:
      return ScalarType::kBool;
    default:
      return std::nullopt;
  }
}

bool is_negated(nb::handle object) {
  return nb::hasattr(object, "is_neg") && nb::cast<bool>(object.attr("is_neg")());
}

nb::object export_capsule(nb::handle object, const std::string& where) {
  try {
    if (nb::hasattr(object, "__dlpack_device__")) {
      nb::object device = object.attr("__dlpack_device__")();
      const auto type = nb::cast<int64_t>(nb::int_(device[0]));
      if (!is_on_cpu(type)) refuse_device(where, type);
    }
    // torch marks a view as negated and leaves its memory as it is, which DLPack does not tell.
    if (is_negated(object)) {
      return object.attr("resolve_neg")().attr("__dlpack__")();
    }
    return object.attr("__dlpack__")();
  } catch (nb::python_error& error) {
    nb::object ours = nb::module_::import_("edgewise.runtime.errors").attr("Error");
    if (error.matches(ours)) throw;
    const std::string reason = describe(error);
    const bool wants_detach = reason.find("grad") != std::string::npos;
    keep_exception(error);
    refuse(where, "could not be read through __dlpack__; got " + reason + "; try " +
                      (wants_detach ? "tensor.detach()" : "a dense tensor in CPU memory"));
  }
}

}  // namespace

ArrayView view_dlpack(nb::handle object, const std::string& where) {
  nb::object capsule = export_capsule(object, where);
  // The capsule is kept, not consumed: when it goes, it releases the tensor itself.
  const DlTensor* tensor = nullptr;
  bool is_read_only = is_negated(object);
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor")) {
    tensor = &static_cast<Managed*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"))->tensor;
  } else if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned")) {
    auto* managed =
        static_cast<ManagedVersioned*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
    if (managed->major != 1) {
      refuse(where, "must follow DLPack 1; got version " + std::to_string(managed->major));
    }
    tensor = &managed->tensor;
    is_read_only = is_read_only || (managed->flags & (kReadOnly | kIsCopied)) != 0;
  } else {
    refuse(where, "must give a DLPack capsule from __dlpack__; got another object");
  }

  if (!is_on_cpu(tensor->device_type)) refuse_device(where, tensor->device_type);
  const auto type = scalar_type(*tensor);
  if (!type) {
    refuse(where, "must have elements of a number type that the runtime holds; got DLPack type " +
                      std::to_string(tensor->code) + " of " + std::to_string(tensor->bits) +
                      " bits; try a conversion to a type of the model's");
  }
  if (tensor->ndim < 0 || tensor->ndim > static_cast<int32_t>(kMaxDims)) {
    refuse(where, "may have up to " + std::to_string(kMaxDims) + " dimensions; got " +
                      std::to_string(tensor->ndim));
  }
  ArrayView view;
  view.type = *type;
  view.rank = static_cast<size_t>(tensor->ndim);
  view.data = static_cast<const std::byte*>(tensor->data) + tensor->byte_offset;
  int64_t dense = static_cast<int64_t>(element_size(*type));
  const int64_t item = dense;
  for (size_t i = view.rank; i-- > 0;) {
    view.sizes[i] = tensor->shape[i];
    view.strides[i] = tensor->strides ? tensor->strides[i] * item : dense;
    dense *= std::max<int64_t>(tensor->shape[i], 1);
  }
  view.is_read_only = is_read_only;
  view.owner = std::move(capsule);
  return view;
}

}  // namespace edgewise::python
