// Programs and sessions of the C interface.
#include <cstddef>
#include <utility>

#include "c/error.h"
#include "c/handles.h"

using edgewise::Code;
using edgewise::Program;
using edgewise::Result;
using edgewise::Status;

namespace edgewise::c {
namespace {

// Members before this one exist in every version.
constexpr size_t kSmallestOptions = offsetof(edgewise_load_options, max_memory);

// Whether the caller's header has the member that begins at `offset` and has `size` bytes.
bool has(const edgewise_load_options& given, size_t offset, size_t size) {
  return given.struct_size >= offset + size;
}

Result<LoadOptions> read_options(const edgewise_load_options* given) {
  LoadOptions options;
  if (given == nullptr) return options;
  if (given->struct_size < kSmallestOptions) {
    return error(Code::kInvalidArgument,
                 "[edgewise_load_options] struct_size must be at least %zu; got %zu; try "
                 "EDGEWISE_LOAD_OPTIONS_INIT",
                 kSmallestOptions, given->struct_size);
  }
  // A caller that was built against a later release may ask for what this one cannot do.
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (size_t i = sizeof(edgewise_load_options); i < given->struct_size; ++i) {
    if (bytes[i] != 0) {
      return error(Code::kUnsupported,
                   "[edgewise_load_options] the caller sets options of a later release; this is "
                   "%s, which knows the first %zu bytes",
                   EDGEWISE_VERSION, sizeof(edgewise_load_options));
    }
  }
  if (given->threads < 0) {
    return error(Code::kInvalidArgument,
                 "[edgewise_load_options] threads must be 0 (one per core) or more; got %d",
                 static_cast<int>(given->threads));
  }
  options.threads = given->threads;
  if (given->minimal_verification != 0) options.verification = Verification::kMinimal;
  options.own_kernels = given->no_own_kernels == 0;
  for (size_t i = 0; i < given->data_file_count; ++i) {
    if (given->data_files == nullptr || given->data_files[i] == nullptr) {
      return error(Code::kInvalidArgument,
                   "[edgewise_load_options] data_files must list %zu paths; number %zu is null",
                   given->data_file_count, i);
    }
    options.data_files.emplace_back(given->data_files[i]);
  }
  if (has(*given, offsetof(edgewise_load_options, max_memory), sizeof(given->max_memory))) {
    options.max_memory = given->max_memory;
  }
  if (has(*given, offsetof(edgewise_load_options, cache_dir), sizeof(given->cache_dir)) &&
      given->cache_dir != nullptr) {
    options.cache_dir = given->cache_dir;
  }
  if (has(*given, offsetof(edgewise_load_options, cache_bytes), sizeof(given->cache_bytes)) &&
      given->cache_bytes != 0) {
    options.cache_bytes = given->cache_bytes;
  }
  return options;
}

// load(options) -> Result<shared_ptr<Program>>
template <typename Load>
edgewise_code load_program(const edgewise_load_options* given, edgewise_program** result,
                           Load&& load) {
  return guarded([&]() -> Status {
    const Result<LoadOptions> options = read_options(given);
    if (!options) return options.status();
    Result<std::shared_ptr<Program>> program = load(options.value());
    if (!program) return program.status();
    std::vector<std::string> names = (*program)->method_names();
    *result = new edgewise_program{std::move(*program), std::move(names)};
    return Status::ok_status();
  });
}

}  // namespace
}  // namespace edgewise::c

extern "C" {

uint32_t edgewise_c_api_version(void) { return EDGEWISE_C_API_VERSION; }
const char* edgewise_version(void) { return EDGEWISE_VERSION; }

edgewise_code edgewise_program_load_file(const char* path, const edgewise_load_options* options,
                                         edgewise_program** result) {
  EDGEWISE_C_NOT_NULL(path);
  EDGEWISE_C_NOT_NULL(result);
  return edgewise::c::load_program(options, result, [path](const edgewise::LoadOptions& read) {
    return Program::load_file(path, read);
  });
}

edgewise_code edgewise_program_load_bytes(const void* bytes, size_t size,
                                          const edgewise_load_options* options,
                                          edgewise_program** result) {
  EDGEWISE_C_NOT_NULL(bytes);
  EDGEWISE_C_NOT_NULL(result);
  return edgewise::c::load_program(
      options, result, [bytes, size](const edgewise::LoadOptions& read) {
        return Program::load_bytes({static_cast<const std::byte*>(bytes), size}, read);
      });
}

void edgewise_program_free(edgewise_program* program) { delete program; }

size_t edgewise_program_method_count(const edgewise_program* program) {
  return program == nullptr ? 0 : program->method_names.size();
}

const char* edgewise_program_method_name(const edgewise_program* program, size_t index) {
  if (index >= edgewise_program_method_count(program)) return nullptr;
  return program->method_names[index].c_str();
}

edgewise_code edgewise_load_kernels(const char* path) {
  EDGEWISE_C_NOT_NULL(path);
  return edgewise::c::guarded([path] { return edgewise::load_kernel_library(path).status(); });
}

edgewise_code edgewise_load_backends(const char* path) {
  EDGEWISE_C_NOT_NULL(path);
  return edgewise::c::guarded([path] { return edgewise::load_backend_library(path).status(); });
}

edgewise_code edgewise_session_new(edgewise_program* program, edgewise_session** result) {
  EDGEWISE_C_NOT_NULL(program);
  EDGEWISE_C_NOT_NULL(result);
  return edgewise::c::guarded([&]() -> Status {
    auto session = program->program->new_session();
    if (!session) return session.status();
    *result = new edgewise_session{program->program, std::move(*session)};
    return Status::ok_status();
  });
}

void edgewise_session_free(edgewise_session* session) { delete session; }

}  // extern "C"
