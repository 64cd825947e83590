#include "array_view.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>

#include "dlpack.h"
#include "errors.h"

namespace nb = nanobind;

namespace edgewise::python {
namespace {

// The text of the object's `dtype`, or "".
std::string dtype_name(nb::handle object) {
  nb::object dtype = nb::getattr(object, "dtype", nb::none());
  return dtype.is_none() ? std::string() : std::string(nb::str(dtype).c_str());
}

// From a format of the struct module; native byte order only.
std::optional<ScalarType> scalar_type(std::string_view format, Py_ssize_t item_size) {
  if (!format.empty() && (format[0] == '@' || format[0] == '=' || format[0] == '<')) {
    format.remove_prefix(1);
  }
  if (format.empty()) format = "B";
  if (format.size() != 1) return std::nullopt;
  const char kind = format[0];
  if (kind == '?') return ScalarType::kBool;
  if (kind == 'e') return ScalarType::kHalf;
  if (kind == 'f') return ScalarType::kFloat;
  if (kind == 'd') return ScalarType::kDouble;
  const bool is_signed = std::string_view("bhilqn").find(kind) != std::string_view::npos;
  if (!is_signed && std::string_view("BHILQN").find(kind) == std::string_view::npos) {
    return std::nullopt;
  }
  switch (item_size) {
    case 1:
      return is_signed ? ScalarType::kChar : ScalarType::kByte;
    case 2:
      return is_signed ? ScalarType::kShort : ScalarType::kUInt16;
    case 4:
      return is_signed ? ScalarType::kInt : ScalarType::kUInt32;
    case 8:
      return is_signed ? ScalarType::kLong : ScalarType::kUInt64;
    default:
      return std::nullopt;
  }
}

// What a memoryview says of itself. Its memory stays where it is as long as the memoryview lives,
// also once this is released.
class BufferInfo {
 public:
  explicit BufferInfo(nb::handle memory) {
    if (PyObject_GetBuffer(memory.ptr(), &buffer_, PyBUF_FULL_RO) != 0) throw nb::python_error();
  }
  ~BufferInfo() { PyBuffer_Release(&buffer_); }
  BufferInfo(const BufferInfo&) = delete;
  BufferInfo& operator=(const BufferInfo&) = delete;
  const Py_buffer* operator->() const { return &buffer_; }

 private:
  Py_buffer buffer_{};
};

ArrayView view_buffer(nb::object memory, const std::string& where) {
  const BufferInfo buffer(memory);
  ArrayView view;
  const std::string_view format = buffer->format ? buffer->format : "B";
  const auto type = scalar_type(format, buffer->itemsize);
  if (!type) {
    refuse(where, "must have elements of a number type in native byte order; got the format '" +
                      std::string(format) + "'; try .astype() to a type of the model's");
  }
  if (buffer->ndim > static_cast<int>(kMaxDims)) {
    refuse(where, "may have up to " + std::to_string(kMaxDims) + " dimensions; got " +
                      std::to_string(buffer->ndim));
  }
  view.type = *type;
  view.data = static_cast<const std::byte*>(buffer->buf);
  view.rank = static_cast<size_t>(buffer->ndim);
  std::copy_n(buffer->shape, view.rank, view.sizes.begin());
  std::copy_n(buffer->strides, view.rank, view.strides.begin());
  view.is_read_only = buffer->readonly != 0;
  view.owner = std::move(memory);
  return view;
}

nb::object memory_view(nb::handle object) {
  return nb::steal(PyMemoryView_FromObject(object.ptr()));
}

}  // namespace

size_t ArrayView::numel() const {
  size_t count = 1;
  for (int64_t size : shape()) count *= static_cast<size_t>(size);
  return count;
}

bool ArrayView::is_dense(std::span<const uint8_t> dim_order) const {
  if (numel() <= 1) return true;
  int64_t expected = static_cast<int64_t>(element_size(type));
  for (size_t i = dim_order.size(); i-- > 0;) {
    const size_t dim = dim_order[i];
    if (sizes[dim] == 1) continue;  // its stride is never used
    if (strides[dim] != expected) return false;
    expected *= sizes[dim];
  }
  return true;
}

bool ArrayView::overlaps() const {
  for (size_t i = 0; i < rank; ++i) {
    if (sizes[i] > 1 && strides[i] == 0) return true;
  }
  return false;
}

ArrayView view_array(nb::handle object, const std::string& where) {
  if (PyObject_CheckBuffer(object.ptr())) {
    nb::object memory = memory_view(object);
    if (memory.is_valid()) return view_buffer(std::move(memory), where);
    PyErr_Clear();
    // numpy has no buffer format for the types of ml_dtypes.
    const std::string dtype = dtype_name(object);
    if (dtype == "bfloat16") {
      memory = memory_view(object.attr("view")("uint16"));
      if (!memory.is_valid()) throw nb::python_error();
      ArrayView view = view_buffer(std::move(memory), where);
      view.type = ScalarType::kBFloat16;
      return view;
    }
    refuse(where, "must have elements of a number type; got " + class_of(object) +
                      (dtype.empty() ? "" : " of " + dtype) +
                      "; try .astype() to a type of the model's");
  }
  if (nb::hasattr(object, "__dlpack__")) return view_dlpack(object, where);
  refuse(where, "must be an array, a number or None; got " + class_of(object) +
                    "; try numpy.asarray() or an object with __dlpack__");
}

namespace {

struct Loop {
  int64_t count;
  int64_t stride;
};

// Elements of a dense row and of the caller's.
template <size_t kSize>
void copy_items(const std::byte* from, int64_t from_stride, std::byte* to, int64_t to_stride,
                int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(to + i * to_stride, from + i * from_stride, kSize);
  }
}

void copy_row(const std::byte* from, int64_t from_stride, std::byte* to, int64_t to_stride,
              int64_t count, size_t item) {
  if (from_stride == to_stride) {  // both dense
    std::memcpy(to, from, static_cast<size_t>(count) * item);
    return;
  }
  switch (item) {
    case 1:
      return copy_items<1>(from, from_stride, to, to_stride, count);
    case 2:
      return copy_items<2>(from, from_stride, to, to_stride, count);
    case 4:
      return copy_items<4>(from, from_stride, to, to_stride, count);
    default:
      return copy_items<8>(from, from_stride, to, to_stride, count);
  }
}

// Calls visit(offset into the array, offset into the dense copy, the row) for each innermost row.
template <typename Visit>
void for_each_row(const ArrayView& array, std::span<const uint8_t> dim_order, Visit visit) {
  if (array.numel() == 0) return;
  // Outermost to innermost; neighbours that step evenly become one loop.
  std::array<Loop, kMaxDims + 1> loops;
  size_t depth = 0;
  for (uint8_t dim : dim_order) {
    const Loop loop{array.sizes[dim], array.strides[dim]};
    if (loop.count == 1) continue;
    if (depth > 0 && loops[depth - 1].stride == loop.stride * loop.count) {
      loops[depth - 1] = {loops[depth - 1].count * loop.count, loop.stride};
    } else {
      loops[depth++] = loop;
    }
  }
  const auto item = static_cast<int64_t>(element_size(array.type));
  if (depth == 0) loops[depth++] = {1, item};

  const Loop row = loops[--depth];
  std::array<int64_t, kMaxDims> position{};
  int64_t strided = 0;
  int64_t dense = 0;
  while (true) {
    visit(strided, dense, row);
    dense += row.count * item;
    size_t level = depth;
    while (level > 0) {
      const Loop& loop = loops[level - 1];
      strided += loop.stride;
      if (++position[level - 1] < loop.count) break;
      strided -= loop.stride * loop.count;
      position[--level] = 0;
    }
    if (level == 0) return;
  }
}

}  // namespace

void copy_dense(const ArrayView& from, std::span<const uint8_t> dim_order, void* to) {
  const size_t item = element_size(from.type);
  for_each_row(from, dim_order, [&](int64_t strided, int64_t dense, Loop row) {
    copy_row(from.data + strided, row.stride, static_cast<std::byte*>(to) + dense,
             static_cast<int64_t>(item), row.count, item);
  });
}

Status store_array(nb::handle object, const std::string& where, Code code, Tensor* tensor) {
  const ArrayView array = view_array(object, where);
  if (array.type != tensor->type() || array.rank != tensor->rank()) {
    return Status(code, where + " must be " + tensor->describe() + "; got " +
                            std::string(to_string(array.type)) + " of rank " +
                            std::to_string(array.rank));
  }
  if (Status status = tensor->resize(array.shape()); !status.ok()) {
    return Status(code, where + " " + status.message());
  }
  if (tensor->data<void>() == nullptr && tensor->nbytes() > 0) {
    return Status(code == Code::kBackend ? code : Code::kInvalidProgram,
                  where + " must have memory; got none for " + tensor->describe());
  }
  copy_dense(array, tensor->dim_order(), tensor->data<void>());
  return Status::ok_status();
}

void fill_from_dense(const ArrayView& to, std::span<const uint8_t> dim_order, const void* from) {
  const size_t item = element_size(to.type);
  for_each_row(to, dim_order, [&](int64_t strided, int64_t dense, Loop row) {
    copy_row(static_cast<const std::byte*>(from) + dense, static_cast<int64_t>(item),
             const_cast<std::byte*>(to.data) + strided, row.stride, row.count, item);
  });
}

}  // namespace edgewise::python
