// Small `.pte` files made by hand, and the kernels and the backend that they run on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "edgewise/program.h"
#include "edgewise/value.h"
#include "program_generated.h"

namespace edgewise::test {

using Fbb = flatbuffers::FlatBufferBuilder;
using Bytes = std::vector<std::byte>;
using MakeValue = std::function<flatbuffers::Offset<fb::EValue>(Fbb&)>;
using MakeInstruction = std::function<flatbuffers::Offset<fb::Instruction>(Fbb&)>;

struct TensorSpec {
  std::vector<int32_t> sizes;
  int memory_id = -1;  // -1: no allocation_info
  uint64_t offset = 0;
  uint32_t data = 0;  // data_buffer_idx
  fb::ScalarType type = fb::ScalarType::FLOAT;
  fb::TensorShapeDynamism dynamism = fb::TensorShapeDynamism::STATIC;
  std::vector<uint8_t> dim_order = {};  // empty: contiguous
  int storage_offset = 0;
  int layout = 0;
  bool external = false;
};

MakeValue none();
MakeValue integer(int64_t value);
MakeValue boolean(bool value);
MakeValue number(double value);
MakeValue text(const std::string& value);
MakeValue tensor(const TensorSpec& spec);
MakeValue int_list(const std::vector<int64_t>& items);
// Their items begin at 4 past a multiple of 8.
MakeValue odd_int_list(const std::vector<int64_t>& items);
MakeValue odd_double_list(const std::vector<double>& items);
MakeValue tensor_list(const std::vector<int32_t>& items);
MakeValue optional_tensor_list(const std::vector<int32_t>& items);

MakeInstruction kernel(int op, const std::vector<int32_t>& args);
MakeInstruction delegate(int index, const std::vector<int32_t>& args);
MakeInstruction move(int from, int to);
MakeInstruction jump_false(int condition, int destination);
MakeInstruction free_value(int value);

struct OperatorSpec {
  std::string name;
  std::string overload;
};

struct DelegateSpec {
  std::string id;
  fb::DataLocation location = fb::DataLocation::SEGMENT;
  uint32_t index = 0;
};

struct MethodSpec {
  std::string name = "forward";
  std::vector<MakeValue> values;
  std::vector<int32_t> inputs;
  std::vector<int32_t> outputs;
  std::vector<MakeInstruction> instructions;
  std::vector<OperatorSpec> operators;
  std::vector<DelegateSpec> delegates;
  std::vector<int64_t> arenas;  // with entry 0
};

struct FileSpec {
  std::vector<MethodSpec> methods;
  std::vector<Bytes> segments;  // each is aligned to 64
  // In segment 0 and segment 1, if the lists are not empty.
  std::vector<uint64_t> constant_offsets;
  std::vector<uint64_t> mutable_offsets;
  std::vector<Bytes> constant_buffer;  // inline, as old files have them
  std::vector<Bytes> inline_payloads;  // an empty one without its vector
  std::map<std::string, uint32_t> named_data;
  uint32_t version = 0;
  bool extended_header = true;
  bool odd_lists = false;  // arenas and constant_offsets begin at 4 past a multiple of 8
  int header_bytes = 32;
};

Bytes make_file(const FileSpec& spec);

// The bytes of numbers.
template <typename T>
Bytes bytes_of(const std::vector<T>& numbers) {
  const auto* begin = reinterpret_cast<const std::byte*>(numbers.data());
  return Bytes(begin, begin + numbers.size() * sizeof(T));
}

Result<std::shared_ptr<Program>> load(
    const FileSpec& spec, Verification verification = Verification::kInternalConsistency);

// A contiguous tensor over `numbers`.
template <typename T>
Value over(std::vector<T>& numbers, ScalarType type, const std::vector<int64_t>& sizes,
           const std::vector<uint8_t>& dim_order = {}) {
  return Value(Tensor::make(type, sizes, dim_order, numbers.data(), numbers.size() * sizeof(T),
                            Dynamism::kStatic)
                   .value());
}

std::vector<float> floats(const Value* value);

// x, y -> y = x + constant: input value 0, constant 1, output 2, "test::add.out".
FileSpec add_file();

// Kernels:
//   test::add.out(Tensor a, Tensor b, Tensor out)     float
//   test::ramp.out(int n, Tensor out)                 out = [0, 1, ... n - 1], resized
//   test::lists.out(int[] a, float[] b, Tensor out)   out = a, then b, resized
//   test::add_.(Tensor self, Tensor other) -> self    in place, no overload
//   test::positive(Tensor a, bool result)             sets the value
//   test::fail.out(Tensor out)                        fails
//   test::throws.out(Tensor out)                      throws
// Backend "TestBackend": output = 2 * input; profiled as one part, "double", of node 3.
// Payload "bad" fails at the start, "late" when run, "named" wants named data "key".
struct TestBackendLog {
  int threads = 0;
  int inits = 0;
  int states = 0;  // program states made
  std::string method;
};
TestBackendLog& backend_log();

}  // namespace edgewise::test
