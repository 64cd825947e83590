#include "edgewise/value.h"

namespace edgewise {

namespace {

struct KindName {
  std::string_view operator()(std::monostate) const { return "None"; }
  std::string_view operator()(int64_t) const { return "int"; }
  std::string_view operator()(double) const { return "float"; }
  std::string_view operator()(bool) const { return "bool"; }
  std::string_view operator()(const std::string&) const { return "str"; }
  std::string_view operator()(const Tensor&) const { return "Tensor"; }
  std::string_view operator()(const IntList&) const { return "int[]"; }
  std::string_view operator()(const DoubleList&) const { return "float[]"; }
  std::string_view operator()(const BoolList&) const { return "bool[]"; }
  std::string_view operator()(const TensorList& list) const {
    return list.optional ? "Tensor?[]" : "Tensor[]";
  }
};

}  // namespace

std::string_view Value::kind() const { return std::visit(KindName(), variant_); }

}  // namespace edgewise
