// A value of a method's value table: what instructions read and write.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "edgewise/status.h"
#include "edgewise/tensor.h"

namespace edgewise {

class Value;

// A list of integers whose items are values of the table (they may be computed).
struct IntList {
  std::vector<const Value*> items;
};
struct DoubleList {
  std::vector<double> items;
};
struct BoolList {
  std::vector<bool> items;
};
// Items point into the value table; in a list of optional tensors they may be None.
struct TensorList {
  std::vector<Value*> items;
  bool optional = false;
};

class Value {
 public:
  using Variant = std::variant<std::monostate, int64_t, double, bool, std::string, Tensor, IntList,
                               DoubleList, BoolList, TensorList>;

  Value() = default;
  explicit Value(Variant variant) : variant_(std::move(variant)) {}

  bool is_none() const { return std::holds_alternative<std::monostate>(variant_); }

  // Pointer to the content if it is of that kind, else null.
  template <typename T>
  T* get() {
    return std::get_if<T>(&variant_);
  }
  template <typename T>
  const T* get() const {
    return std::get_if<T>(&variant_);
  }

  Variant& variant() { return variant_; }
  const Variant& variant() const { return variant_; }

  // "None", "int", "float", "bool", "str", "Tensor", "int[]", "float[]", "bool[]",
  // "Tensor[]", "Tensor?[]".
  std::string_view kind() const;

 private:
  Variant variant_;
};

}  // namespace edgewise
