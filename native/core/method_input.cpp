#include "method_input.h"

#include <algorithm>
#include <cmath>

#include "format.h"
#include "input_sizes.h"
#include "tensor_copy.h"

namespace edgewise {

namespace {

// The size that the dimension must have; negative: there is none.
int64_t fixed_size(const ValueInfo& rule, size_t dim) {
  if (rule.dynamism == Dynamism::kStatic) return rule.sizes[dim];
  return rule.size_symbols.empty() ? kAnySize : rule.size_symbols[dim];
}

// "[?, 6]", "[<=8, 6]"
std::string describe_mixed(const ValueInfo& rule) {
  std::string text;
  for (size_t dim = 0; dim < rule.sizes.size(); ++dim) {
    const bool is_bound = rule.dynamism == Dynamism::kDynamicBound;
    const int64_t fixed = fixed_size(rule, dim);
    text += dim == 0 ? "[" : ", ";
    if (fixed >= 0) {
      text += std::to_string(fixed);
    } else {
      text += is_bound ? "<=" + std::to_string(rule.sizes[dim]) : "?";
    }
  }
  return text + "]";
}

// "float32[1, 3, 224, 224]", "float32 of at most [8, 128]", "float32 of rank 2", "float32[?, 6]"
std::string describe(const ValueInfo& rule) {
  std::string text(to_string(rule.type));
  if (!rule.size_symbols.empty()) return text + describe_mixed(rule);
  switch (rule.dynamism) {
    case Dynamism::kStatic:
      return text + format_sizes(rule.sizes);
    case Dynamism::kDynamicBound:
      return text + " of at most " + format_sizes(rule.sizes);
    case Dynamism::kDynamicUnbound:
      return text + " of rank " + std::to_string(rule.sizes.size());
  }
  return text;
}

Status mismatch(const ValueInfo& rule, const Tensor& got, const std::string& advice) {
  return error(Code::kInvalidArgument, "must be %s; got %s; %s", describe(rule).c_str(),
               got.describe().c_str(), advice.c_str());
}

// Pictures are read from files as NHWC, torch's models take NCHW.
bool is_transposed_picture(const ValueInfo& rule, const Tensor& got) {
  if (rule.sizes.size() != 4 || rule.dynamism == Dynamism::kDynamicUnbound) return false;
  const int64_t nchw[] = {got.size(0), got.size(3), got.size(1), got.size(2)};
  return std::ranges::equal(nchw, rule.sizes);
}

Status check_tensor(const ValueInfo& rule, const Tensor& got) {
  if (got.type() != rule.type) {
    return mismatch(rule, got, "try converting it to " + std::string(to_string(rule.type)));
  }
  if (got.rank() != rule.sizes.size()) {
    return mismatch(rule, got,
                    "try a tensor of " + std::to_string(rule.sizes.size()) + " dimensions");
  }
  for (size_t dim = 0; dim < rule.sizes.size(); ++dim) {
    const int64_t fixed = fixed_size(rule, dim);
    if (fixed >= 0 && got.size(dim) != fixed) {
      if (is_transposed_picture(rule, got)) {
        return mismatch(rule, got, "try moving the channels: transpose(0, 3, 1, 2)");
      }
      return mismatch(rule, got,
                      "dimension " + std::to_string(dim) +
                          " is static; try exporting the model with dynamic_shapes");
    }
    if (rule.dynamism == Dynamism::kDynamicBound && got.size(dim) > rule.sizes[dim]) {
      return mismatch(rule, got,
                      "dimension " + std::to_string(dim) +
                          " is too large; try exporting the model with a larger bound");
    }
  }
  if (got.data<void>() == nullptr && got.nbytes() != 0) {
    return mismatch(rule, got, "it has no data");
  }
  return Status::ok_status();
}

// The tensor that `value` is, if it fits; `target` has its sizes then.
Result<const Tensor*> fit_tensor(const ValueInfo& rule, const Value& value, Tensor& target) {
  const Tensor* source = value.get<Tensor>();
  if (source == nullptr) {
    return error(Code::kInvalidArgument, "must be %s; got %s; try a tensor", describe(rule).c_str(),
                 std::string(value.kind()).c_str());
  }
  EDGEWISE_RETURN_IF_ERROR(check_tensor(rule, *source));
  // A move may have put another tensor there.
  if (target.type() != rule.type || target.rank() != rule.sizes.size()) {
    return error(Code::kUnsupported, "was replaced by the program; try reset()");
  }
  EDGEWISE_RETURN_IF_ERROR(target.resize(source->sizes()));
  return source;
}

std::string print(const Value& value) {
  if (const int64_t* i = value.get<int64_t>()) return std::to_string(*i);
  if (const double* d = value.get<double>()) return format_number(*d);
  if (const bool* b = value.get<bool>()) return *b ? "True" : "False";
  if (const std::string* s = value.get<std::string>()) return "'" + *s + "'";
  return std::string(value.kind());
}

// Of values of one kind, no tensors; NaN equals itself.
bool is_same(const Value& a, const Value& b) {
  const double* x = a.get<double>();
  const double* y = b.get<double>();
  if (x == nullptr || y == nullptr) return print(a) == print(b);
  return *x == *y || (std::isnan(*x) && std::isnan(*y));
}

// A value other than a tensor: the same kind, or an int for a float.
Status copy_plain(const ValueInfo& rule, const Value& value, bool fixed, Value& target) {
  Value converted = value;
  const int64_t* integer = value.get<int64_t>();
  if (rule.kind == "float" && integer != nullptr) {
    converted = Value(static_cast<double>(*integer));
  }
  const bool plain = rule.kind == "int" || rule.kind == "float" || rule.kind == "bool" ||
                     rule.kind == "str" || rule.kind == "None";
  if (!plain) {
    return error(Code::kUnsupported, "is of kind %s, which cannot be set", rule.kind.c_str());
  }
  if (converted.kind() != rule.kind) {
    return error(
        Code::kInvalidArgument, "must be %s; got %s", rule.kind.c_str(),
        value.get<Tensor>() ? value.get<Tensor>()->describe().c_str() : print(value).c_str());
  }
  if (fixed) {
    if (!is_same(converted, target)) {
      return error(Code::kInvalidArgument,
                   "was fixed to %s when the program was exported; got %s; try exporting it with "
                   "the value as a tensor",
                   print(target).c_str(), print(value).c_str());
    }
    return Status::ok_status();
  }
  target = std::move(converted);
  return Status::ok_status();
}

Result<Tensor*> tensor_of(Value& target) {
  Tensor* tensor = target.get<Tensor>();
  if (tensor != nullptr) return tensor;
  return error(Code::kUnsupported, "was replaced by the program; try reset()");
}

bool can_take_memory(const Tensor& source, const Tensor& target) {
  return source.nbytes() != 0 && same_layout(source, target) &&
         reinterpret_cast<uintptr_t>(source.data<void>()) % element_size(source.type()) == 0;
}

}  // namespace

Status copy_input(const ValueInfo& rule, const Value& value, bool fixed, Value& target) {
  if (rule.kind != "Tensor") return copy_plain(rule, value, fixed, target);
  const Result<Tensor*> tensor = tensor_of(target);
  if (!tensor) return tensor.status();
  const Result<const Tensor*> source = fit_tensor(rule, value, **tensor);
  if (!source) return source.status();
  return copy_elements(**source, **tensor);
}

Result<bool> set_input_zero_copy(const ValueInfo& rule, const Value& value, Value& target) {
  const Result<Tensor*> tensor = tensor_of(target);
  if (!tensor) return tensor.status();
  const Result<const Tensor*> source = fit_tensor(rule, value, **tensor);
  if (!source) return source.status();
  if (can_take_memory(**source, **tensor)) {
    (*tensor)->set_data((*source)->data<void>(), (*source)->nbytes());
    return true;
  }
  EDGEWISE_RETURN_IF_ERROR(copy_elements(**source, **tensor));
  return false;
}

}  // namespace edgewise
