#include <cstdarg>

#include "edgewise/kernel.h"
#include "format.h"

namespace edgewise {

namespace {

std::optional<Scalar> to_scalar(const Value& value) {
  if (const bool* b = value.get<bool>()) return Scalar{Scalar::Kind::kBool, *b ? 1 : 0, 0};
  if (const int64_t* i = value.get<int64_t>()) return Scalar{Scalar::Kind::kInt, *i, 0};
  if (const double* d = value.get<double>()) return Scalar{Scalar::Kind::kDouble, 0, *d};
  return std::nullopt;
}

}  // namespace

Status KernelContext::fail(Code code, const char* format, ...) {
  if (!status_.ok()) return status_;
  va_list arguments;
  va_start(arguments, format);
  status_ = Status(code, format_message(format, arguments)).within(op_);
  va_end(arguments);
  return status_;
}

Value* KernelContext::value(size_t index) {
  if (index < arguments_.size() && arguments_[index] != nullptr) return arguments_[index];
  (void)fail(Code::kInvalidProgram, "argument %zu is missing; the call has %zu", index,
             arguments_.size());
  return nullptr;
}

// Records that argument `index` is not `wanted`.
#define EDGEWISE_WRONG_KIND(index, wanted)                                            \
  (void)fail(Code::kInvalidProgram, "argument %zu must be %s; got %s", index, wanted, \
             std::string(arguments_[index]->kind()).c_str())

const Tensor* KernelContext::tensor(size_t index) {
  Value* found = value(index);
  if (found == nullptr) return nullptr;
  const Tensor* tensor = found->get<Tensor>();
  if (tensor == nullptr) {
    EDGEWISE_WRONG_KIND(index, "a tensor");
    return nullptr;
  }
  if (tensor->data<void>() == nullptr && tensor->nbytes() != 0) {
    (void)fail(Code::kInvalidProgram, "argument %zu, %s, has no memory yet: nothing has written it",
               index, tensor->describe().c_str());
    return nullptr;
  }
  return tensor;
}

const Tensor* KernelContext::optional_tensor(size_t index) {
  Value* found = value(index);
  return found == nullptr || found->is_none() ? nullptr : tensor(index);
}

Tensor* KernelContext::out(size_t index) {
  Value* found = value(index);
  if (found == nullptr) return nullptr;
  Tensor* tensor = found->get<Tensor>();
  if (tensor == nullptr) {
    EDGEWISE_WRONG_KIND(index, "a tensor");
    return nullptr;
  }
  if (!tensor->is_writable()) {
    (void)fail(Code::kInvalidProgram,
               "argument %zu, %s, is an output but a constant of the program", index,
               tensor->describe().c_str());
    return nullptr;
  }
  return tensor;
}

// The optional accessors do the work; a plain one also refuses None. Two calls record
// one failure, since the first stays.
#define EDGEWISE_REQUIRED(type, optional_accessor, wanted) \
  Value* found = value(index);                             \
  if (found == nullptr) return type{};                     \
  if (found->is_none()) {                                  \
    EDGEWISE_WRONG_KIND(index, wanted);                    \
    return type{};                                         \
  }                                                        \
  return optional_accessor(index).value_or(type{})

int64_t KernelContext::integer(size_t index) {
  EDGEWISE_REQUIRED(int64_t, optional_integer, "an int");
}
double KernelContext::number(size_t index) {
  EDGEWISE_REQUIRED(double, optional_number, "a number");
}
bool KernelContext::boolean(size_t index) { EDGEWISE_REQUIRED(bool, optional_boolean, "a bool"); }
Scalar KernelContext::scalar(size_t index) {
  EDGEWISE_REQUIRED(Scalar, optional_scalar, "a number");
}
std::vector<int64_t> KernelContext::int_list(size_t index) {
  EDGEWISE_REQUIRED(std::vector<int64_t>, optional_int_list, "a list of ints");
}

std::optional<Scalar> KernelContext::optional_scalar(size_t index) {
  Value* found = value(index);
  if (found == nullptr || found->is_none()) return std::nullopt;
  std::optional<Scalar> scalar = to_scalar(*found);
  if (!scalar) EDGEWISE_WRONG_KIND(index, "a number");
  return scalar;
}

std::optional<int64_t> KernelContext::optional_integer(size_t index) {
  Value* found = value(index);
  if (found == nullptr || found->is_none()) return std::nullopt;
  const std::optional<Scalar> scalar = to_scalar(*found);
  if (!scalar || scalar->kind == Scalar::Kind::kDouble) {
    EDGEWISE_WRONG_KIND(index, "an int");
    return std::nullopt;
  }
  return scalar->i;
}

std::optional<double> KernelContext::optional_number(size_t index) {
  const std::optional<Scalar> scalar = optional_scalar(index);
  if (!scalar) return std::nullopt;
  return scalar->to<double>();
}

std::optional<bool> KernelContext::optional_boolean(size_t index) {
  Value* found = value(index);
  if (found == nullptr || found->is_none()) return std::nullopt;
  if (const bool* b = found->get<bool>()) return *b;
  EDGEWISE_WRONG_KIND(index, "a bool");
  return std::nullopt;
}

std::optional<std::vector<int64_t>> KernelContext::optional_int_list(size_t index) {
  Value* found = value(index);
  if (found == nullptr || found->is_none()) return std::nullopt;
  if (const int64_t* single = found->get<int64_t>()) return std::vector<int64_t>{*single};
  const IntList* list = found->get<IntList>();
  if (list == nullptr) {
    EDGEWISE_WRONG_KIND(index, "a list of ints");
    return std::nullopt;
  }
  std::vector<int64_t> items;
  items.reserve(list->items.size());
  for (const Value* item : list->items) {
    const int64_t* number = item != nullptr ? item->get<int64_t>() : nullptr;
    if (number == nullptr) {
      (void)fail(Code::kInvalidProgram, "argument %zu, a list of ints, has an item of another kind",
                 index);
      return std::nullopt;
    }
    items.push_back(*number);
  }
  return items;
}

std::optional<std::vector<double>> KernelContext::optional_double_list(size_t index) {
  Value* found = value(index);
  if (found == nullptr || found->is_none()) return std::nullopt;
  if (const DoubleList* list = found->get<DoubleList>()) return list->items;
  EDGEWISE_WRONG_KIND(index, "a list of floats");
  return std::nullopt;
}

std::vector<const Tensor*> KernelContext::tensor_list(size_t index) {
  Value* found = value(index);
  if (found == nullptr) return {};
  const TensorList* list = found->get<TensorList>();
  if (list == nullptr) {
    EDGEWISE_WRONG_KIND(index, "a list of tensors");
    return {};
  }
  std::vector<const Tensor*> items;
  items.reserve(list->items.size());
  for (const Value* item : list->items) {
    if (item == nullptr || item->is_none()) {
      if (!list->optional) {
        (void)fail(Code::kInvalidProgram, "argument %zu, a list of tensors, has None in it", index);
        return {};
      }
      items.push_back(nullptr);
      continue;
    }
    const Tensor* tensor = item->get<Tensor>();
    if (tensor == nullptr || (tensor->data<void>() == nullptr && tensor->nbytes() != 0)) {
      (void)fail(Code::kInvalidProgram,
                 "argument %zu, a list of tensors, has an item that is no tensor with memory",
                 index);
      return {};
    }
    items.push_back(tensor);
  }
  return items;
}

std::string_view KernelContext::string(size_t index) {
  Value* found = value(index);
  if (found == nullptr) return {};
  if (const std::string* text = found->get<std::string>()) return *text;
  EDGEWISE_WRONG_KIND(index, "a string");
  return {};
}

std::optional<ScalarType> KernelContext::optional_scalar_type(size_t index) {
  const std::optional<int64_t> number = optional_integer(index);
  if (!number) return std::nullopt;
  if (*number < 0 || *number > INT8_MAX || element_size(static_cast<ScalarType>(*number)) == 0) {
    (void)fail(Code::kUnsupported, "argument %zu must be an element type; got number %lld", index,
               static_cast<long long>(*number));
    return std::nullopt;
  }
  return static_cast<ScalarType>(*number);
}

}  // namespace edgewise
