#include "backends/xnnpack/datatype.h"

namespace edgewise::xnnpack {
namespace {

struct Row {
  const char* name;
  xnn_datatype xnn;
  size_t bits;
};

constexpr Row kRows[] = {
    {"invalid", xnn_datatype_invalid, 0}, {"fp32", xnn_datatype_fp32, 32},
    {"fp16", xnn_datatype_fp16, 16},      {"qint8", xnn_datatype_qint8, 8},
    {"quint8", xnn_datatype_quint8, 8},   {"qint32", xnn_datatype_qint32, 32},
    {"qcint8", xnn_datatype_qcint8, 8},   {"qcint32", xnn_datatype_qcint32, 32},
    {"qcint4", xnn_datatype_qcint4, 4},   {"qdint8", xnn_datatype_qdint8, 8},
    {"qbint4", xnn_datatype_qbint4, 4},   {"qpint8", xnn_datatype_qpint8, 8},
    {"int32", xnn_datatype_int32, 32},    {"pfp32", xnn_datatype_pfp32, 32},
    {"bf16", xnn_datatype_bf16, 16},      {"qbint8", xnn_datatype_invalid, 8},
};

const Row& row(DataType type) { return kRows[static_cast<size_t>(type)]; }

}  // namespace

const char* name_of(DataType type) { return row(type).name; }
xnn_datatype to_xnn(DataType type) { return row(type).xnn; }
size_t bits_of(DataType type) { return row(type).bits; }

bool accepts(DataType type, ScalarType tensor) {
  switch (type) {
    case DataType::kFp32:
      return tensor == ScalarType::kFloat;
    case DataType::kFp16:
      return tensor == ScalarType::kHalf;
    case DataType::kBf16:
      return tensor == ScalarType::kBFloat16;
    case DataType::kQint8:
      return tensor == ScalarType::kChar || tensor == ScalarType::kQInt8;
    case DataType::kQuint8:
      return tensor == ScalarType::kByte || tensor == ScalarType::kQUInt8;
    case DataType::kInt32:
    case DataType::kQint32:
      return tensor == ScalarType::kInt || tensor == ScalarType::kQInt32;
    default:
      return false;
  }
}

}  // namespace edgewise::xnnpack
