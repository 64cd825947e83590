// A method as the file describes it, read and checked once: plain data in which every
// index, extent and size is valid. Methods are made from it without looking at the
// flatbuffer again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "checked.h"
#include "edgewise/backend.h"
#include "edgewise/program.h"
#include "edgewise/status.h"
#include "edgewise/tensor.h"
#include "pte_file.h"

namespace edgewise {

struct TensorPlan {
  enum class Storage : uint8_t {
    kConstant,  // in the file, read-only
    kPlanned,   // at `offset` of arena `arena`
    kDynamic,   // in a DynamicBuffer, once the shape is known
  };
  ScalarType type = ScalarType::kFloat;
  std::vector<int64_t> sizes;  // upper bounds unless static
  std::vector<uint8_t> dim_order;
  Dynamism dynamism = Dynamism::kStatic;
  size_t nbytes = 0;
  Storage storage = Storage::kPlanned;
  const std::byte* constant = nullptr;
  std::string_view attribute;          // the name of a mutable buffer, where the file has one
  std::span<const std::byte> initial;  // content that a mutable buffer starts with
  uint32_t arena = 0;                  // 0: the arena of tensors that the file does not plan
  size_t offset = 0;

  bool has_initial() const { return initial.data() != nullptr; }
};

// Lists of value indices; kNone for None.
inline constexpr uint32_t kNone = UINT32_MAX;
struct IntListPlan {
  std::vector<uint32_t> items;
};
struct TensorListPlan {
  std::vector<uint32_t> items;
  bool optional = false;
};

using ValuePlan = std::variant<std::monostate, int64_t, double, bool, std::string, TensorPlan,
                               IntListPlan, DoubleList, BoolList, TensorListPlan>;

struct InstructionPlan {
  using Kind = InstructionInfo::Kind;
  Kind kind = Kind::kKernel;
  uint32_t target = 0;         // operator, delegate; value moved from, tested or freed
  uint32_t destination = 0;    // value moved to; instruction of the flat list jumped to
  std::vector<uint32_t> args;  // of kernels and delegates
};

// A kernel's call in place of the instructions `first` to `last`, see instruction_fusion.h.
struct FusedCall {
  uint32_t first = 0;
  uint32_t last = 0;
  const char* kernel = nullptr;
  std::vector<uint32_t> args;  // of the kernel's schema, kNone for None; the output comes last
  // A tensor in whose memory the output is computed, since its own memory is an operand's; kNone:
  // in its own.
  uint32_t computed_in = kNone;
};

struct DelegatePlan {
  std::string backend;
  std::span<const std::byte> payload;
  std::vector<CompileSpec> compile_specs;
};

struct MethodPlan {
  std::string name;
  std::vector<ValuePlan> values;
  std::vector<uint32_t> inputs;
  std::vector<uint32_t> outputs;
  std::vector<uint32_t> attributes;           // in the order of info.attributes
  std::vector<InstructionPlan> instructions;  // all chains, one after the other
  std::vector<FusedCall> fused;
  std::vector<std::string> operators;  // "aten::add.out", "aten::copy_"
  std::vector<DelegatePlan> delegates;
  std::vector<size_t> arenas;       // bytes; entry 0 is filled by the tensors without a plan
  std::vector<bool> shared_arenas;  // of `arenas`, those that a session's methods share
  MethodInfo info;

  const TensorPlan* tensor(uint32_t value) const { return std::get_if<TensorPlan>(&values[value]); }
};

// Limits that no real program comes near, so that a small file cannot ask for more
// memory or time than its size justifies (flatbuffers may share what they repeat).
inline constexpr size_t kMaxValues = size_t{1} << 20;
inline constexpr size_t kMaxItems = size_t{1} << 24;  // of all lists of the program
// Jumps back that one execution may take, so that no file runs for ever: some seconds of an
// empty loop.
inline constexpr uint64_t kMaxRounds = 100'000'000;
inline constexpr size_t kMaxPlannedBytes = kMostBytes;

// What is left of kMaxItems while a program is read.
struct ItemBudget {
  size_t left = kMaxItems;
  Status take(size_t items);
};

// Reads one method. Failures say "[method] ...".
Result<MethodPlan> read_method(const PteFile& file, const fb::ExecutionPlan& plan,
                               ItemBudget& budget);

// Parts of read_method; `plan` has its arenas already when values are read, and its
// values when the others are.
Status read_arenas(const fb::ExecutionPlan& source, MethodPlan& plan);
Status read_values(const PteFile& file, const fb::ExecutionPlan& source, ItemBudget& budget,
                   MethodPlan& plan);
Status read_instructions(const fb::ExecutionPlan& source, ItemBudget& budget, MethodPlan& plan);

// Checks a list of value indices.
template <typename T>
Status read_indices(const flatbuffers::Vector<T>* items, size_t value_count, const char* what,
                    ItemBudget& budget, std::vector<uint32_t>* result) {
  result->clear();
  if (items == nullptr) return Status::ok_status();
  EDGEWISE_RETURN_IF_ERROR(budget.take(items->size()));
  result->reserve(items->size());
  for (uint32_t i = 0; i < items->size(); ++i) {
    const int64_t index = item(*items, i);
    if (index < 0 || static_cast<uint64_t>(index) >= value_count) {
      return error(Code::kInvalidProgram, "%s refer to value %lld; the method has %zu", what,
                   static_cast<long long>(index), value_count);
    }
    result->push_back(static_cast<uint32_t>(index));
  }
  return Status::ok_status();
}

}  // namespace edgewise
