#include "outputs.h"

#include <nanobind/ndarray.h>

#include <cstring>
#include <type_traits>
#include <utility>

#include "errors.h"

namespace nb = nanobind;

namespace edgewise::python {
namespace {

nb::dlpack::dtype array_type(ScalarType type) {
  using nb::dlpack::dtype_code;
  const auto make = [&](dtype_code code) {
    return nb::dlpack::dtype{static_cast<uint8_t>(code),
                             static_cast<uint8_t>(8 * element_size(type)), 1};
  };
  switch (type) {
    case ScalarType::kByte:
    case ScalarType::kQUInt8:
    case ScalarType::kUInt16:
    case ScalarType::kUInt32:
    case ScalarType::kUInt64:
    case ScalarType::kBFloat16:  // its bits; made a number type in Python
      return make(dtype_code::UInt);
    case ScalarType::kHalf:
    case ScalarType::kFloat:
    case ScalarType::kDouble:
      return make(dtype_code::Float);
    case ScalarType::kBool:
      return make(dtype_code::Bool);
    default:
      return make(dtype_code::Int);
  }
}

nb::object copy_tensor(const Tensor& tensor) {
  ArrayMemory memory = allocate_array(tensor.nbytes());
  if (memory && tensor.nbytes() > 0) {
    if (tensor.data<void>() == nullptr) {
      raise(Status(Code::kInternal, "[output] a tensor must have been computed; got none"));
    }
    std::memcpy(memory.get(), tensor.data<void>(), tensor.nbytes());
  }
  return to_array(tensor, std::move(memory));
}

template <typename Items>
nb::object to_list(const Items& items) {
  nb::list list;
  for (auto item : items) {
    if constexpr (std::is_convertible_v<decltype(item), const Value*>) {
      list.append(item ? to_python(*item) : nb::none());
    } else {
      list.append(item);
    }
  }
  return list;
}

}  // namespace

ArrayMemory allocate_array(size_t bytes) {
  const size_t padded = bytes + kReadPadding + kBufferAlignment - 1;
  return ArrayMemory(
      platform::allocate_aligned(kBufferAlignment, padded / kBufferAlignment * kBufferAlignment));
}

nb::object to_array(const Tensor& tensor, ArrayMemory memory) {
  if (!memory) {
    raise(error(Code::kOutOfMemory, "[output] memory must hold %s; got none of %zu bytes",
                tensor.describe().c_str(), tensor.nbytes()));
  }
  std::array<size_t, kMaxDims> shape{};
  for (size_t i = 0; i < tensor.rank(); ++i) shape[i] = static_cast<size_t>(tensor.size(i));
  void* data = memory.get();
  nb::capsule owner(data, [](void* pointer) noexcept { platform::free_aligned(pointer); });
  (void)memory.release();
  nb::ndarray<nb::numpy> array(data, tensor.rank(), shape.data(), owner, tensor.strides().data(),
                               array_type(tensor.type()));
  nb::object result = nb::cast(array, nb::rv_policy::reference);
  if (tensor.type() != ScalarType::kBFloat16) return result;
  return nb::module_::import_("edgewise.runtime._bfloat16").attr("from_bits")(result);
}

nb::object to_python(const Value& value, ArrayMemory bound) {
  return std::visit(
      [&](const auto& content) -> nb::object {
        using T = std::decay_t<decltype(content)>;
        if constexpr (std::is_same_v<T, std::monostate>) {
          return nb::none();
        } else if constexpr (std::is_same_v<T, Tensor>) {
          const bool written = bound && content.template data<void>() == bound.get();
          return written ? to_array(content, std::move(bound)) : copy_tensor(content);
        } else if constexpr (std::is_same_v<T, int64_t>) {
          return nb::int_(content);
        } else if constexpr (std::is_same_v<T, double>) {
          return nb::float_(content);
        } else if constexpr (std::is_same_v<T, bool>) {
          return nb::bool_(content);
        } else if constexpr (std::is_same_v<T, std::string>) {
          return to_text(content);
        } else {
          return to_list(content.items);
        }
      },
      value.variant());
}

}  // namespace edgewise::python
