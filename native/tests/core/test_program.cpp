#include "test_program.h"

#include <cstring>

namespace edgewise::test {

namespace {

template <typename T>
flatbuffers::Offset<fb::EValue> wrap(Fbb& fbb, fb::KernelTypes type, flatbuffers::Offset<T> value) {
  return fb::CreateEValue(fbb, type, value.Union());
}

template <typename T>
flatbuffers::Offset<fb::Instruction> wrap(Fbb& fbb, fb::InstructionArguments type,
                                          flatbuffers::Offset<T> value) {
  return fb::CreateInstruction(fbb, type, value.Union());
}

void append(Bytes& file, const void* data, size_t size) {
  const auto* begin = static_cast<const std::byte*>(data);
  file.insert(file.end(), begin, begin + size);
}

void pad(Bytes& file, size_t alignment) {
  while (file.size() % alignment != 0) file.push_back(std::byte{0});
}

// Items of 8 bytes that begin at 4 past a multiple of 8, as flatc leaves some.
template <typename T>
flatbuffers::Offset<flatbuffers::Vector<T>> odd_vector(Fbb& fbb, const std::vector<T>& items) {
  while (fbb.GetSize() % 8 != 4) fbb.PushElement(uint8_t{0});
  std::vector<uint32_t> halves(items.size() * sizeof(T) / sizeof(uint32_t));
  std::memcpy(halves.data(), items.data(), items.size() * sizeof(T));
  const auto made = fbb.CreateVector(halves);
  flatbuffers::WriteScalar(fbb.GetCurrentBufferPointer(), static_cast<uint32_t>(items.size()));
  return flatbuffers::Offset<flatbuffers::Vector<T>>(made.o);
}

flatbuffers::Offset<fb::ExecutionPlan> make_plan(Fbb& fbb, const MethodSpec& spec, bool odd) {
  std::vector<flatbuffers::Offset<fb::EValue>> values;
  for (const MakeValue& make : spec.values) values.push_back(make(fbb));
  std::vector<flatbuffers::Offset<fb::Instruction>> instructions;
  for (const MakeInstruction& make : spec.instructions) instructions.push_back(make(fbb));
  std::vector<flatbuffers::Offset<fb::Operator>> operators;
  for (const OperatorSpec& op : spec.operators) {
    operators.push_back(fb::CreateOperatorDirect(fbb, op.name.c_str(), op.overload.c_str()));
  }
  std::vector<flatbuffers::Offset<fb::BackendDelegate>> delegates;
  for (const DelegateSpec& item : spec.delegates) {
    const auto reference = fb::CreateBackendDelegateDataReference(fbb, item.location, item.index);
    delegates.push_back(fb::CreateBackendDelegateDirect(fbb, item.id.c_str(), reference));
  }
  const std::vector chains = {fb::CreateChainDirect(fbb, nullptr, nullptr, &instructions)};
  const auto meta = fb::CreateContainerMetadataDirect(fbb, "in", "out");
  const auto name = fbb.CreateString(spec.name);
  const auto value_list = fbb.CreateVector(values);
  const auto inputs = fbb.CreateVector(spec.inputs);
  const auto outputs = fbb.CreateVector(spec.outputs);
  const auto chain_list = fbb.CreateVector(chains);
  const auto operator_list = fbb.CreateVector(operators);
  const auto delegate_list = fbb.CreateVector(delegates);
  const auto arenas = odd ? odd_vector(fbb, spec.arenas) : fbb.CreateVector(spec.arenas);
  return fb::CreateExecutionPlan(fbb, name, meta, value_list, inputs, outputs, chain_list,
                                 operator_list, delegate_list, arenas);
}

}  // namespace

MakeValue none() {
  return [](Fbb& fbb) { return wrap(fbb, fb::KernelTypes::Null, fb::CreateNull(fbb)); };
}
MakeValue integer(int64_t value) {
  return [=](Fbb& fbb) { return wrap(fbb, fb::KernelTypes::Int, fb::CreateInt(fbb, value)); };
}
MakeValue boolean(bool value) {
  return [=](Fbb& fbb) { return wrap(fbb, fb::KernelTypes::Bool, fb::CreateBool(fbb, value)); };
}
MakeValue number(double value) {
  return [=](Fbb& fbb) { return wrap(fbb, fb::KernelTypes::Double, fb::CreateDouble(fbb, value)); };
}
MakeValue text(const std::string& value) {
  return [=](Fbb& fbb) {
    return wrap(fbb, fb::KernelTypes::String, fb::CreateStringDirect(fbb, value.c_str()));
  };
}
MakeValue int_list(const std::vector<int64_t>& items) {
  return [=](Fbb& fbb) {
    return wrap(fbb, fb::KernelTypes::IntList, fb::CreateIntListDirect(fbb, &items));
  };
}
MakeValue odd_int_list(const std::vector<int64_t>& items) {
  return [=](Fbb& fbb) {
    const auto list = odd_vector(fbb, items);
    return wrap(fbb, fb::KernelTypes::IntList, fb::CreateIntList(fbb, list));
  };
}
MakeValue odd_double_list(const std::vector<double>& items) {
  return [=](Fbb& fbb) {
    const auto list = odd_vector(fbb, items);
    return wrap(fbb, fb::KernelTypes::DoubleList, fb::CreateDoubleList(fbb, list));
  };
}
MakeValue tensor_list(const std::vector<int32_t>& items) {
  return [=](Fbb& fbb) {
    return wrap(fbb, fb::KernelTypes::TensorList, fb::CreateTensorListDirect(fbb, &items));
  };
}
MakeValue optional_tensor_list(const std::vector<int32_t>& items) {
  return [=](Fbb& fbb) {
    return wrap(fbb, fb::KernelTypes::OptionalTensorList,
                fb::CreateOptionalTensorListDirect(fbb, &items));
  };
}

MakeValue tensor(const TensorSpec& spec) {
  return [=](Fbb& fbb) {
    std::vector<uint8_t> order = spec.dim_order;
    for (size_t i = order.size(); i < spec.sizes.size(); ++i) {
      order.push_back(static_cast<uint8_t>(i));
    }
    flatbuffers::Offset<fb::AllocationDetails> allocation;
    if (spec.memory_id >= 0) {
      allocation = fb::CreateAllocationDetails(fbb, static_cast<uint32_t>(spec.memory_id),
                                               static_cast<uint32_t>(spec.offset),
                                               static_cast<uint32_t>(spec.offset >> 32));
    }
    flatbuffers::Offset<fb::ExtraTensorInfo> extra;
    if (spec.external) {
      extra = fb::CreateExtraTensorInfoDirect(fbb, 0, "w", fb::TensorDataLocation::EXTERNAL);
    }
    const auto made = fb::CreateTensorDirect(
        fbb, spec.type, spec.storage_offset, &spec.sizes, &order, false, spec.data, allocation,
        static_cast<int8_t>(spec.layout), spec.dynamism, extra);
    return wrap(fbb, fb::KernelTypes::Tensor, made);
  };
}

MakeInstruction kernel(int op, const std::vector<int32_t>& args) {
  return [=](Fbb& fbb) {
    return wrap(fbb, fb::InstructionArguments::KernelCall,
                fb::CreateKernelCallDirect(fbb, op, &args));
  };
}
MakeInstruction delegate(int index, const std::vector<int32_t>& args) {
  return [=](Fbb& fbb) {
    return wrap(fbb, fb::InstructionArguments::DelegateCall,
                fb::CreateDelegateCallDirect(fbb, index, &args));
  };
}
MakeInstruction move(int from, int to) {
  return [=](Fbb& fbb) {
    return wrap(fbb, fb::InstructionArguments::MoveCall, fb::CreateMoveCall(fbb, from, to));
  };
}
MakeInstruction jump_false(int condition, int destination) {
  return [=](Fbb& fbb) {
    return wrap(fbb, fb::InstructionArguments::JumpFalseCall,
                fb::CreateJumpFalseCall(fbb, condition, destination));
  };
}
MakeInstruction free_value(int value) {
  return [=](Fbb& fbb) {
    return wrap(fbb, fb::InstructionArguments::FreeCall, fb::CreateFreeCall(fbb, value));
  };
}

Bytes make_file(const FileSpec& spec) {
  Fbb fbb;
  std::vector<flatbuffers::Offset<fb::ExecutionPlan>> plans;
  for (const MethodSpec& method : spec.methods) {
    plans.push_back(make_plan(fbb, method, spec.odd_lists));
  }
  std::vector<flatbuffers::Offset<fb::Buffer>> buffers;
  for (const Bytes& bytes : spec.constant_buffer) {
    fbb.ForceVectorAlignment(bytes.size(), 1, 16);
    const auto data =
        fbb.CreateVector(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    buffers.push_back(fb::CreateBuffer(fbb, data));
  }
  std::vector<flatbuffers::Offset<fb::DataSegment>> segments;
  uint64_t end = 0;
  for (const Bytes& segment : spec.segments) {
    segments.push_back(fb::CreateDataSegment(fbb, end, segment.size()));
    end = (end + segment.size() + 63) / 64 * 64;
  }
  std::vector<flatbuffers::Offset<fb::SubsegmentOffsets>> mutable_lists;
  if (!spec.mutable_offsets.empty()) {
    mutable_lists.push_back(fb::CreateSubsegmentOffsetsDirect(fbb, 1, &spec.mutable_offsets));
  }
  flatbuffers::Offset<fb::SubsegmentOffsets> constants;
  if (!spec.constant_offsets.empty()) {
    const auto offsets = spec.odd_lists ? odd_vector(fbb, spec.constant_offsets)
                                        : fbb.CreateVector(spec.constant_offsets);
    constants = fb::CreateSubsegmentOffsets(fbb, 0, offsets);
  }
  std::vector<flatbuffers::Offset<fb::NamedData>> named;
  for (const auto& [key, segment] : spec.named_data) {
    named.push_back(fb::CreateNamedDataDirect(fbb, key.c_str(), segment));
  }
  std::vector<flatbuffers::Offset<fb::BackendDelegateInlineData>> payloads;
  for (const Bytes& bytes : spec.inline_payloads) {
    const auto* begin = reinterpret_cast<const uint8_t*>(bytes.data());
    const flatbuffers::Offset<flatbuffers::Vector<uint8_t>> data =
        bytes.empty() ? 0 : fbb.CreateVector(begin, bytes.size());
    payloads.push_back(fb::CreateBackendDelegateInlineData(fbb, data));
  }
  fb::FinishProgramBuffer(
      fbb, fb::CreateProgramDirect(fbb, spec.version, &plans, &buffers, &payloads, &segments,
                                   constants, &mutable_lists, &named));
  Bytes file;
  if (!spec.extended_header) {
    append(file, fbb.GetBufferPointer(), fbb.GetSize());
    return file;
  }
  constexpr uint32_t kInserted = 32;
  const uint32_t root = flatbuffers::ReadScalar<uint32_t>(fbb.GetBufferPointer()) + kInserted;
  append(file, &root, 4);
  append(file, fbb.GetBufferPointer() + 4, 4);
  const uint64_t program_size = fbb.GetSize() + kInserted;
  const uint64_t base = spec.segments.empty() ? 0 : (program_size + 63) / 64 * 64;
  const uint64_t data_size =
      spec.segments.empty() ? 0 : (end - (end + 64 - spec.segments.back().size()) % 64);
  const auto length = static_cast<uint32_t>(spec.header_bytes);
  append(file, "eh00", 4);
  append(file, &length, 4);
  append(file, &program_size, 8);
  append(file, &base, 8);
  append(file, &data_size, 8);
  append(file, fbb.GetBufferPointer() + 8, fbb.GetSize() - 8);
  for (const Bytes& segment : spec.segments) {
    pad(file, 64);
    file.insert(file.end(), segment.begin(), segment.end());
  }
  return file;
}

Result<std::shared_ptr<Program>> load(const FileSpec& spec, Verification verification) {
  return Program::load_bytes(make_file(spec), {.verification = verification, .threads = 1});
}

std::vector<float> floats(const Value* value) {
  const Tensor* tensor = value == nullptr ? nullptr : value->get<Tensor>();
  if (tensor == nullptr || tensor->type() != ScalarType::kFloat) return {};
  const float* data = tensor->data<float>();
  return {data, data + tensor->numel()};
}

FileSpec add_file() {
  MethodSpec method;
  method.values = {tensor({.sizes = {4}, .memory_id = 1, .offset = 0}),
                   tensor({.sizes = {4}, .data = 1}),
                   tensor({.sizes = {4}, .memory_id = 1, .offset = 64})};
  method.inputs = {0};
  method.outputs = {2};
  method.operators = {{"test::add", "out"}};
  method.instructions = {kernel(0, {0, 1, 2, 2})};
  method.arenas = {0, 128};
  FileSpec file;
  file.methods = {method};
  file.segments = {bytes_of<float>({10, 20, 30, 40})};
  file.constant_offsets = {0, 0};
  return file;
}

}  // namespace edgewise::test
