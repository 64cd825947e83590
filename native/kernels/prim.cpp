// Scalars of a program: arithmetic on symbolic sizes, sizes of tensors, and the value of
// a tensor of one element. The result is written to the value after the arguments.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>

#include "cpu_dispatch.h"
#include "kernel_status.h"
#include "view.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

void set(Value* value, int64_t number) { value->variant() = number; }
void set(Value* value, double number) { value->variant() = number; }
void set(Value* value, bool truth) { value->variant() = truth; }

// A tensor's slot in the table is not given to a number.
Value* result_of(KernelContext& context, size_t index) {
  Value* value = context.value(index);
  if (value &&
      (value->get<int64_t>() || value->get<double>() || value->get<bool>() || value->is_none())) {
    return value;
  }
  if (value) {
    (void)context.fail(Code::kInvalidProgram, "argument %zu is a number for the result; got %s",
                       index, std::string(value->kind()).c_str());
  }
  return nullptr;
}

bool is_double(const Scalar& scalar) { return scalar.kind == Scalar::Kind::kDouble; }

enum class Op : uint8_t {
  kAdd,
  kSub,
  kMul,
  kFloorDiv,
  kTrueDiv,
  kMod,
  kMax,
  kMin,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
};

template <Op kOp, typename T>
Status compute(KernelContext& context, T a, T b, Value* result) {
  constexpr bool whole = std::is_integral_v<T>;
  if constexpr (kOp == Op::kFloorDiv || kOp == Op::kMod || kOp == Op::kTrueDiv) {
    if (b == 0)
      return context.fail(Code::kInvalidArgument,
                          "a number is not divided by zero; got a zero divisor");
  }
  if constexpr (kOp == Op::kAdd) set(result, wrap_add(a, b));
  if constexpr (kOp == Op::kSub) set(result, wrap_sub(a, b));
  if constexpr (kOp == Op::kMul) set(result, wrap_mul(a, b));
  if constexpr (kOp == Op::kTrueDiv) set(result, static_cast<double>(a) / static_cast<double>(b));
  if constexpr (kOp == Op::kFloorDiv && whole) {
    set(result, b == -1 ? wrap_sub<T>(0, a) : a / b - (a % b != 0 && (a < 0) != (b < 0)));
  }
  if constexpr (kOp == Op::kFloorDiv && !whole) set(result, std::floor(a / b));
  if constexpr (kOp == Op::kMod && whole) {
    const T rest = b == -1 ? 0 : a % b;
    set(result, rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
  }
  if constexpr (kOp == Op::kMod && !whole) {
    const T rest = std::fmod(a, b);
    set(result, rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
  }
  if constexpr (kOp == Op::kMax) set(result, std::max(a, b));
  if constexpr (kOp == Op::kMin) set(result, std::min(a, b));
  if constexpr (kOp == Op::kEq) set(result, a == b);
  if constexpr (kOp == Op::kNe) set(result, a != b);
  if constexpr (kOp == Op::kLt) set(result, a < b);
  if constexpr (kOp == Op::kLe) set(result, a <= b);
  if constexpr (kOp == Op::kGt) set(result, a > b);
  if constexpr (kOp == Op::kGe) set(result, a >= b);
  return context.status();
}

template <Op kOp>
Status binary_number(KernelContext& context) {
  const Scalar a = context.scalar(0), b = context.scalar(1);
  Value* result = result_of(context, 2);
  if (!context.ok()) return context.status();
  if (is_double(a) || is_double(b)) {
    return compute<kOp, double>(context, scalar_to<double>(a), scalar_to<double>(b), result);
  }
  return compute<kOp, int64_t>(context, a.i, b.i, result);
}

enum class Unary : uint8_t { kFloat, kInt, kNeg, kCeil, kRound, kTrunc, kNot };

template <Unary kOp>
Status unary_number(KernelContext& context) {
  const Scalar a = context.scalar(0);
  Value* result = result_of(context, 1);
  if (!context.ok()) return context.status();
  const double d = scalar_to<double>(a);
  const bool whole = !is_double(a);
  switch (kOp) {
    case Unary::kFloat:
      set(result, d);
      break;
    case Unary::kInt:
    case Unary::kTrunc:
      set(result, whole ? a.i : convert<int64_t>(d));
      break;
    case Unary::kCeil:
      set(result, whole ? a.i : convert<int64_t>(std::ceil(d)));
      break;
    case Unary::kRound:
      set(result, whole ? a.i : convert<int64_t>(std::nearbyint(d)));
      break;
    case Unary::kNeg:
      if (whole) {
        set(result, wrap_sub<int64_t>(0, a.i));
      } else {
        set(result, -d);
      }
      break;
    case Unary::kNot:
      set(result, d == 0);
      break;
  }
  return context.status();
}

// sym_ite: one of two numbers.
Status choose(KernelContext& context) {
  const Scalar condition = context.scalar(0);
  const Scalar chosen = context.scalar(scalar_to<double>(condition) != 0 ? 1 : 2);
  Value* result = result_of(context, 3);
  if (!context.ok()) return context.status();
  if (is_double(chosen)) {
    set(result, chosen.d);
  } else if (chosen.kind == Scalar::Kind::kBool) {
    set(result, chosen.i != 0);
  } else {
    set(result, chosen.i);
  }
  return context.status();
}

template <bool kStride>
Status sym_size(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  int64_t dim = context.integer(1);
  Value* result = result_of(context, 2);
  if (!context.ok()) return context.status();
  EDGEWISE_TRY(check_has_dims(view_of(*self)));
  EDGEWISE_TRY(normalize_dim(dim, self->rank()));
  const size_t along = static_cast<size_t>(dim);
  set(result, kStride ? self->strides()[along] : self->size(along));
  return context.status();
}

Status sym_numel(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  Value* result = result_of(context, 1);
  if (!context.ok()) return context.status();
  set(result, self->numel());
  return context.status();
}

Status local_scalar(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  Value* result = result_of(context, 1);
  if (!context.ok()) return context.status();
  if (self->numel() != 1 || !is_computable(self->type())) {
    return context.fail(Code::kInvalidArgument, "takes a tensor of one number; got %s",
                        self->describe().c_str());
  }
  const std::byte* data = self->data<std::byte>();
  if (is_floating(self->type())) {
    set(result, load_one<double>(self->type(), data));
  } else if (self->type() == ScalarType::kBool) {
    set(result, load_one<int64_t>(self->type(), data) != 0);
  } else {
    set(result, load_one<int64_t>(self->type(), data));
  }
  return context.status();
}

// Bounds that the exporter knows of a symbolic size: checked, with no result.
Status constrain_range(KernelContext& context) {
  const Scalar size = context.scalar(0);
  const auto least = context.optional_integer(1), most = context.optional_integer(2);
  if (!context.ok()) return context.status();
  const double value = scalar_to<double>(size);
  if ((least && value < static_cast<double>(*least)) ||
      (most && value > static_cast<double>(*most))) {
    return context.fail(Code::kInvalidArgument,
                        "the program was exported for sizes from %lld to %lld; got %g",
                        static_cast<long long>(least.value_or(0)),
                        static_cast<long long>(most.value_or(INT64_MAX)), value);
  }
  return context.status();
}

// Planned memory keeps its rows when a tensor grows; a buffer has to be made larger with them in
// it: twice as large each time, so that a row is copied twice on average.
Status keep_rows(Tensor* target, size_t row, int64_t index) {
  DynamicBuffer* buffer = target->buffer();
  if (buffer == nullptr) return Status::ok_status();
  const size_t used = row * static_cast<size_t>(index);
  if (row != 0 && used / row != static_cast<size_t>(index)) {
    return error(Code::kOutOfMemory, "[et_copy_index] the rows do not fit memory");
  }
  if (used + row <= buffer->capacity()) return Status::ok_status();
  auto larger = std::make_shared<DynamicBuffer>(buffer->limit());
  size_t wanted = 2 * (used + row);
  if (buffer->limit() != 0) wanted = std::max(used + row, std::min(wanted, buffer->limit()));
  EDGEWISE_RETURN_IF_ERROR(larger->reserve(wanted));
  if (used != 0 && used <= buffer->capacity()) std::memcpy(larger->data(), buffer->data(), used);
  target->set_data(larger->data(), larger->capacity());
  target->set_buffer(std::move(larger));
  return Status::ok_status();
}

// Copies `source` to row `index` of an accumulated tensor, which grows to index + 1 rows.
Status copy_index(KernelContext& context) {
  const Tensor* source = context.tensor(1);
  const int64_t index = context.integer(2);
  Tensor* target = context.out(0);
  if (!context.ok()) return context.status();
  if (source == target || target->rank() != source->rank() + 1 || index < 0 || index == INT64_MAX ||
      target->type() != source->type()) {
    return context.fail(
        Code::kInvalidArgument, "a row of %s is set to a tensor like it; got %s, index %lld",
        target->describe().c_str(), source->describe().c_str(), static_cast<long long>(index));
  }
  // A tensor that can have several shapes has as many rows as were set.
  const bool grows = target->dynamism() != Dynamism::kStatic || index >= target->size(0) ||
                     !std::ranges::equal(target->sizes().subspan(1), source->sizes());
  if (grows) {
    Dims sizes(source->sizes());
    sizes.insert(0, index + 1);
    EDGEWISE_TRY(keep_rows(target, source->nbytes(), index));
    EDGEWISE_TRY(target->resize(sizes));
  }
  return finish(context, assign(view_of(*target).select(0, index), view_of(*source)));
}

constexpr KernelEntry kKernels[] = {
    {"executorch_prim::add.Scalar", 2, binary_number<Op::kAdd>},
    {"executorch_prim::sub.Scalar", 2, binary_number<Op::kSub>},
    {"executorch_prim::mul.Scalar", 2, binary_number<Op::kMul>},
    {"executorch_prim::floordiv.Scalar", 2, binary_number<Op::kFloorDiv>},
    {"executorch_prim::truediv.Scalar", 2, binary_number<Op::kTrueDiv>},
    {"executorch_prim::mod.Scalar", 2, binary_number<Op::kMod>},
    {"executorch_prim::sym_max.Scalar", 2, binary_number<Op::kMax>},
    {"executorch_prim::sym_min.Scalar", 2, binary_number<Op::kMin>},
    {"executorch_prim::eq.Scalar", 2, binary_number<Op::kEq>},
    {"executorch_prim::ne.Scalar", 2, binary_number<Op::kNe>},
    {"executorch_prim::lt.Scalar", 2, binary_number<Op::kLt>},
    {"executorch_prim::le.Scalar", 2, binary_number<Op::kLe>},
    {"executorch_prim::gt.Scalar", 2, binary_number<Op::kGt>},
    {"executorch_prim::ge.Scalar", 2, binary_number<Op::kGe>},
    {"executorch_prim::sym_float.Scalar", 1, unary_number<Unary::kFloat>},
    {"executorch_prim::sym_int.Scalar", 1, unary_number<Unary::kInt>},
    {"executorch_prim::neg.Scalar", 1, unary_number<Unary::kNeg>},
    {"executorch_prim::ceil.Scalar", 1, unary_number<Unary::kCeil>},
    {"executorch_prim::round.Scalar", 1, unary_number<Unary::kRound>},
    {"executorch_prim::trunc.Scalar", 1, unary_number<Unary::kTrunc>},
    {"executorch_prim::sym_not.Scalar", 1, unary_number<Unary::kNot>},
    {"executorch_prim::sym_ite.Scalar", 3, choose},
    {"executorch_prim::et_copy_index.tensor", 3, copy_index},
    {"aten::sym_size.int", 2, sym_size<false>},
    {"aten::sym_stride.int", 2, sym_size<true>},
    {"aten::sym_numel", 1, sym_numel},
    {"aten::_local_scalar_dense", 1, local_scalar},
    {"aten::sym_constrain_range", 3, constrain_range},
    {"aten::sym_constrain_range_for_size", 3, constrain_range},
};
const KernelTable table(kEveryLevel, kSelected<kKernels>);

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace edgewise
