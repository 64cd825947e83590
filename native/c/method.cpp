// Methods of the C interface.
#include <cstdlib>
#include <utility>

#include "c/error.h"
#include "c/handles.h"
#include "c/value.h"
#include "platform/aligned_memory.h"

using edgewise::Code;
using edgewise::error;
using edgewise::Status;
using edgewise::c::guarded;

namespace {

Status describe(const edgewise_method& method, const char* what, size_t index,
                const std::vector<edgewise::ValueInfo>& values, edgewise_value* result) {
  if (index >= values.size()) {
    return error(Code::kInvalidArgument, "[%s] the method has %zu %ss; got %s %zu",
                 method.method->info().name.c_str(), values.size(), what, what, index);
  }
  edgewise::c::to_c(values[index], result);
  return Status::ok_status();
}

edgewise_code take_input(Status (edgewise::Method::*take)(size_t, const edgewise::Value&),
                         edgewise_method* method, size_t index, const edgewise_value* value) {
  EDGEWISE_C_NOT_NULL(method);
  EDGEWISE_C_NOT_NULL(value);
  return guarded([&]() -> Status {
    const auto read = edgewise::c::from_c(*value);
    if (!read) return read.status();
    return (method->method.get()->*take)(index, read.value());
  });
}

Status after_execute(const edgewise_method& method, const edgewise::Value& value,
                     edgewise_value* result) {
  if (!method.has_outputs) {
    return error(Code::kInvalidArgument,
                 "[%s] results are there after edgewise_method_execute has succeeded; got none",
                 method.method->info().name.c_str());
  }
  edgewise::c::to_c(value, result);
  return Status::ok_status();
}

}  // namespace

extern "C" {

edgewise_code edgewise_method_load(edgewise_program* program, const char* name,
                                   edgewise_session* session, edgewise_method** result) {
  EDGEWISE_C_NOT_NULL(program);
  EDGEWISE_C_NOT_NULL(name);
  EDGEWISE_C_NOT_NULL(result);
  return guarded([&]() -> Status {
    auto method =
        program->program->load_method(name, session == nullptr ? nullptr : session->session);
    if (!method) return method.status();
    *result = new edgewise_method{std::move(*method)};
    return Status::ok_status();
  });
}

void edgewise_method_free(edgewise_method* method) { delete method; }

size_t edgewise_method_input_count(const edgewise_method* method) {
  return method == nullptr ? 0 : method->method->info().inputs.size();
}

size_t edgewise_method_output_count(const edgewise_method* method) {
  return method == nullptr ? 0 : method->method->info().outputs.size();
}

edgewise_code edgewise_method_input_info(const edgewise_method* method, size_t index,
                                         edgewise_value* result) {
  EDGEWISE_C_NOT_NULL(method);
  EDGEWISE_C_NOT_NULL(result);
  return guarded(
      [&] { return describe(*method, "input", index, method->method->info().inputs, result); });
}

edgewise_code edgewise_method_output_info(const edgewise_method* method, size_t index,
                                          edgewise_value* result) {
  EDGEWISE_C_NOT_NULL(method);
  EDGEWISE_C_NOT_NULL(result);
  return guarded(
      [&] { return describe(*method, "output", index, method->method->info().outputs, result); });
}

edgewise_code edgewise_method_set_input(edgewise_method* method, size_t index,
                                        const edgewise_value* value) {
  return take_input(&edgewise::Method::set_input, method, index, value);
}

edgewise_code edgewise_method_set_input_zero_copy(edgewise_method* method, size_t index,
                                                  const edgewise_value* value) {
  return take_input(&edgewise::Method::set_input_zero_copy, method, index, value);
}

edgewise_code edgewise_method_lend_input(edgewise_method* method, size_t index,
                                         const edgewise_value* value) {
  return edgewise_method_set_input_zero_copy(method, index, value);
}

edgewise_code edgewise_method_execute(edgewise_method* method) {
  EDGEWISE_C_NOT_NULL(method);
  method->has_outputs = false;
  return guarded([&] {
    const Status status = method->method->execute();
    method->has_outputs = status.ok();
    return status;
  });
}

edgewise_code edgewise_method_output(const edgewise_method* method, size_t index,
                                     edgewise_value* result) {
  EDGEWISE_C_NOT_NULL(method);
  EDGEWISE_C_NOT_NULL(result);
  return guarded([&]() -> Status {
    const edgewise::MethodInfo& info = method->method->info();
    const edgewise::Value* output = method->method->output(index);
    if (output == nullptr) {
      return error(Code::kInvalidArgument, "[%s] the method has %zu outputs; got output %zu",
                   info.name.c_str(), info.outputs.size(), index);
    }
    return after_execute(*method, *output, result);
  });
}

edgewise_code edgewise_method_written_input(const edgewise_method* method, size_t index,
                                            edgewise_value* result) {
  EDGEWISE_C_NOT_NULL(method);
  EDGEWISE_C_NOT_NULL(result);
  return guarded([&]() -> Status {
    const edgewise::Value* input = method->method->written_input(index);
    if (input == nullptr) {
      return error(Code::kInvalidArgument,
                   "[%s] the method only reads input %zu; got a call for "
                   "what it has written there",
                   method->method->info().name.c_str(), index);
    }
    return after_execute(*method, *input, result);
  });
}

edgewise_code edgewise_method_bind_output(edgewise_method* method, size_t index, void* data,
                                          size_t capacity, int* bound) {
  EDGEWISE_C_NOT_NULL(method);
  EDGEWISE_C_NOT_NULL(bound);
  return guarded([&]() -> Status {
    const auto& outputs = method->method->info().outputs;
    if (index >= outputs.size()) {
      return error(Code::kInvalidArgument, "[%s] the method has %zu outputs; got output %zu",
                   method->method->info().name.c_str(), outputs.size(), index);
    }
    *bound = method->method->bind_output(index, data, capacity) ? 1 : 0;
    return Status::ok_status();
  });
}

void* edgewise_buffer_new(size_t bytes) {
  using edgewise::kBufferAlignment;
  const size_t padded = bytes + edgewise::kReadPadding + kBufferAlignment - 1;
  if (padded < bytes) return nullptr;
  return edgewise::platform::allocate_aligned(kBufferAlignment,
                                              padded / kBufferAlignment * kBufferAlignment);
}

void edgewise_buffer_free(void* data) { edgewise::platform::free_aligned(data); }

edgewise_code edgewise_method_reset(edgewise_method* method) {
  EDGEWISE_C_NOT_NULL(method);
  method->has_outputs = false;
  return guarded([&] { return method->method->reset(); });
}

}  // extern "C"
