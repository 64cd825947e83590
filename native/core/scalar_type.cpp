#include "edgewise/scalar_type.h"

#include <array>

namespace edgewise {

namespace {

struct Row {
  ScalarType type;
  uint8_t bytes;
  std::string_view name;
};

constexpr Row kRows[] = {
    {ScalarType::kByte, 1, "uint8"},        {ScalarType::kChar, 1, "int8"},
    {ScalarType::kShort, 2, "int16"},       {ScalarType::kInt, 4, "int32"},
    {ScalarType::kLong, 8, "int64"},        {ScalarType::kHalf, 2, "float16"},
    {ScalarType::kFloat, 4, "float32"},     {ScalarType::kDouble, 8, "float64"},
    {ScalarType::kBool, 1, "bool"},         {ScalarType::kQInt8, 1, "qint8"},
    {ScalarType::kQUInt8, 1, "quint8"},     {ScalarType::kQInt32, 4, "qint32"},
    {ScalarType::kBFloat16, 2, "bfloat16"}, {ScalarType::kUInt16, 2, "uint16"},
    {ScalarType::kUInt32, 4, "uint32"},     {ScalarType::kUInt64, 8, "uint64"},
};

const Row* find_row(ScalarType type) {
  for (const Row& row : kRows) {
    if (row.type == type) return &row;
  }
  return nullptr;
}

}  // namespace

size_t element_size(ScalarType type) {
  // Asked for wherever an element is addressed: one load.
  static constexpr auto kBytes = [] {
    std::array<uint8_t, 32> bytes{};
    for (const Row& row : kRows) bytes[static_cast<size_t>(row.type)] = row.bytes;
    return bytes;
  }();
  const auto index = static_cast<uint8_t>(type);
  return index < kBytes.size() ? kBytes[index] : 0;
}

std::string_view to_string(ScalarType type) {
  const Row* row = find_row(type);
  return row ? row->name : "unknown";
}

}  // namespace edgewise
