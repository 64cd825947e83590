// Rows of a quantized table by index: quantized_decomposed::embedding_byte, _4bit and _2bit.
//
// A row of packed weights is bytes: two 4-bit numbers with 8 added, the first in the high bits,
// or four 2-bit numbers with 2 added, the first in the low bits. A row has one scale, or one for
// each of equal groups.
#include "indices.h"
#include "kernel_status.h"
#include "view.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

template <int kBits>
float number_at(const Tensor& weight, const std::byte* row, int64_t column) {
  if constexpr (kBits == 8) {
    const auto byte = std::to_integer<uint8_t>(row[column]);
    return weight.type() == ScalarType::kByte ? static_cast<float>(byte)
                                              : static_cast<float>(static_cast<int8_t>(byte));
  } else if constexpr (kBits == 4) {
    const auto byte = std::to_integer<int32_t>(row[column / 2]);
    return static_cast<float>((column % 2 == 0 ? byte >> 4 : byte & 0xf) - 8);
  } else {
    const auto byte = std::to_integer<int32_t>(row[column / 4]);
    return static_cast<float>((byte >> (2 * (column % 4)) & 3) - 2);
  }
}

struct Table {
  const Tensor* weight = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t groups = 1;
  Scratch<float> scales;
  Scratch<float> zeros;

  Status read(int bits, const Tensor* scale, const Tensor* zero);
  Status read_numbers(const Tensor& from, const char* name, Scratch<float>* numbers) const;
};

Status Table::read_numbers(const Tensor& from, const char* name, Scratch<float>* numbers) const {
  const View view = view_of(from);
  const int64_t count = rows * groups;
  if (!is_floating(view.type) || view.numel() != count || !view.is_row_major()) {
    return error(Code::kInvalidArgument, "%s must have %lld real numbers in order; got %s", name,
                 static_cast<long long>(count), from.describe().c_str());
  }
  EDGEWISE_RETURN_IF_ERROR(numbers->reserve(count));
  load<float>(view.type, view.data, 1, count, numbers->data());
  return {};
}

Status Table::read(int bits, const Tensor* scale, const Tensor* zero) {
  const bool is_bytes =
      weight->type() == ScalarType::kByte || (bits == 8 && weight->type() == ScalarType::kChar);
  if (weight->rank() != 2 || !is_bytes || !view_of(*weight).is_row_major()) {
    return error(Code::kInvalidArgument, "takes a table of bytes [N, D] in order; got %s",
                 weight->describe().c_str());
  }
  rows = weight->size(0);
  if (__builtin_mul_overflow(weight->size(1), int64_t{8 / bits}, &columns)) {
    return error(Code::kInvalidArgument, "rows must be shorter; got %s",
                 weight->describe().c_str());
  }
  const bool has_groups = scale->rank() == 2 && scale->size(1) > 0;
  groups = has_groups ? scale->size(1) : 1;
  if (scale->rank() < 1 || scale->rank() > 2 || scale->size(0) != rows || columns % groups != 0) {
    return error(Code::kInvalidArgument,
                 "scales must be [N] or [N, groups], groups dividing a row of %lld; got %s",
                 static_cast<long long>(columns), scale->describe().c_str());
  }
  EDGEWISE_RETURN_IF_ERROR(read_numbers(*scale, "weight_scales", &scales));
  if (zero != nullptr) return read_numbers(*zero, "weight_zero_points", &zeros);
  EDGEWISE_RETURN_IF_ERROR(zeros.reserve(rows * groups));
  std::fill_n(zeros.data(), rows * groups, 0.0f);
  return {};
}

// The overload with a dtype has it before the result, whose own type decides.
template <int kBits, size_t kOut>
Status embedding(KernelContext& context) {
  Table table;
  table.weight = context.tensor(0);
  const Tensor* scale = context.tensor(1);
  const Tensor* zero = context.optional_tensor(2);
  const Tensor* indices = context.tensor(5);
  Tensor* out = output(context, kOut);
  if (!context.ok()) return context.status();
  EDGEWISE_TRY(table.read(kBits, scale, zero));
  if (indices->rank() >= kMaxDims || !is_floating(out->type())) {
    return context.fail(Code::kInvalidArgument, "makes rows of real numbers; got %s of %s",
                        out->describe().c_str(), indices->describe().c_str());
  }
  Dims sizes(indices->sizes());
  sizes.push(table.columns);
  EDGEWISE_TRY(out->resize(sizes));
  Indices wanted;
  EDGEWISE_TRY(wanted.read(*indices, table.rows, Indices::Negative::kRefused));
  const View target = view_of(*out);
  if (!target.is_row_major()) {
    return context.fail(Code::kUnsupported, "the result must lie in order; got %s",
                        out->describe().c_str());
  }
  Scratch<float> row;
  EDGEWISE_TRY(row.reserve(table.columns));
  const std::byte* weights = view_of(*table.weight).data;
  const int64_t width = table.weight->size(1);
  const int64_t group = table.columns / table.groups;
  const size_t bytes = static_cast<size_t>(table.columns) * element_size(out->type());
  for (int64_t i = 0; i < wanted.count(); ++i) {
    const std::byte* from = weights + wanted[i] * width;
    for (int64_t column = 0; column < table.columns; ++column) {
      const int64_t block = wanted[i] * table.groups + column / group;
      row[column] = (number_at<kBits>(*table.weight, from, column) - table.zeros[block]) *
                    table.scales[block];
    }
    store<float>(out->type(), row.data(), table.columns,
                 target.data + static_cast<size_t>(i) * bytes, 1);
  }
  return context.status();
}

#define QD "quantized_decomposed::"
constexpr KernelEntry kKernels[] = {
    {QD "embedding_byte.out", 7, embedding<8, 6>},
    {QD "embedding_byte.dtype_out", 8, embedding<8, 7>},
    {QD "embedding_4bit.out", 7, embedding<4, 6>},
    {QD "embedding_4bit.dtype_out", 8, embedding<4, 7>},
    {QD "embedding_2bit.out", 7, embedding<2, 6>},
    {QD "embedding_2bit.dtype_out", 8, embedding<2, 7>},
};
const KernelTable table(HWY_TARGET, kSelected<kKernels>);
#undef QD

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace edgewise
