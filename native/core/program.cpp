#include "edgewise/program.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "cpu_level.h"
#include "guarded.h"
#include "instruction_fusion.h"
#include "method.h"
#include "method_plan.h"
#include "platform/cpu_count.h"
#include "platform/log.h"
#include "platform/mutex.h"
#include "program_workers.h"
#include "pte_file.h"
#include "session.h"

namespace edgewise {

namespace {

class LoadedProgram : public Program {
 public:
  LoadedProgram(std::unique_ptr<PteFile> file, std::vector<MethodPlan> methods, int threads,
                const LoadOptions& options)
      : file_(std::move(file)),
        methods_(std::move(methods)),
        threads_(threads),
        own_kernels_(options.own_kernels),
        max_memory_(options.max_memory) {
#ifndef EDGEWISE_BARE_METAL  // where there is one thread
    if (threads > 1) {
      workers_ = std::make_unique<ProgramWorkers>([this] { return find_workers(); });
    }
#endif
  }

  std::vector<std::string> method_names() const override {
    std::vector<std::string> names;
    for (const MethodPlan& method : methods_) names.push_back(method.name);
    return names;
  }

  Result<MethodInfo> method_info(std::string_view name) const override {
    const MethodPlan* method = find_method(name);
    if (method == nullptr) return no_method(name);
    return method->info;
  }

  Result<std::shared_ptr<Session>> new_session() override {
    size_t shared = 0;
    for (const MethodPlan& method : methods_)
      shared = std::max(shared, planned_bytes(method, true));
    EDGEWISE_RETURN_IF_ERROR(check_memory(shared).within("session"));
    return guarded("session", [&]() -> Result<std::shared_ptr<Session>> {
      Result<std::shared_ptr<Session>> session = Session::create(this, methods_);
      EDGEWISE_RETURN_IF_ERROR(file_->check_whole().within("session"));
      return session;
    });
  }

  using Program::load_method;
  Result<std::unique_ptr<Method>> load_method(std::string_view name,
                                              std::shared_ptr<Session> session) override {
    const MethodPlan* method = find_method(name);
    if (method == nullptr) return no_method(name);
    EDGEWISE_RETURN_IF_ERROR(check_memory(planned_bytes(*method, false)).within(method->name));
    if (session == nullptr) {
      Result<std::shared_ptr<Session>> own = new_session();
      if (!own) return own.status();
      session = std::move(*own);
    } else if (session->program() != this) {
      return error(Code::kInvalidArgument,
                   "[load_method] the session must be of this program; got another one's");
    }
    return guarded(method->name.c_str(), [&]() -> Result<std::unique_ptr<Method>> {
      Result<std::unique_ptr<Method>> made = MethodInstance::create(
          shared_from_this(), *file_, *method, std::move(session), max_memory_, workers_.get(),
          [this, method](size_t index) { return make_delegate(*method, index); });
      if (file_->cache() != nullptr) file_->cache()->finish();
      // Of which what `made` says may be a consequence.
      EDGEWISE_RETURN_IF_ERROR(file_->check_whole().within(method->name));
      return made;
    });
  }

  size_t size_bytes() const override { return file_->size_bytes(); }

 private:
  const MethodPlan* find_method(std::string_view name) const {
    for (const MethodPlan& method : methods_) {
      if (method.name == name) return &method;
    }
    return nullptr;
  }

  // Of one arena after the other: reading the plan made sure that the sum is a number.
  static size_t planned_bytes(const MethodPlan& method, bool only_shared) {
    size_t total = 0;
    for (size_t arena = 0; arena < method.arenas.size(); ++arena) {
      if (!only_shared || method.shared_arenas[arena]) total += method.arenas[arena];
    }
    return total;
  }

  Status check_memory(size_t planned) const {
    if (max_memory_ == 0 || planned <= max_memory_) return Status::ok_status();
    return error(Code::kOutOfMemory, "max_memory is %zu bytes; the program plans %zu", max_memory_,
                 planned);
  }

  Status no_method(std::string_view name) const {
    std::string names;
    for (const MethodPlan& method : methods_) {
      names += (names.empty() ? "'" : ", '") + method.name + "'";
    }
    return error(Code::kNotFound, "[load_method] the program has the methods %s; got '%s'",
                 names.c_str(), std::string(name).c_str());
  }

  Result<std::unique_ptr<Delegate>> make_delegate(const MethodPlan& method, size_t index) {
    const DelegatePlan& plan = method.delegates[index];
    const std::shared_ptr<Backend> backend = find_backend(plan.backend);
    if (backend == nullptr) {
      std::string names;
      for (const std::string& name : backend_names()) names += (names.empty() ? "" : ", ") + name;
      return error(Code::kNotFound,
                   "[%s] delegate %zu needs the backend '%s'; registered here: %s; try linking or "
                   "registering it",
                   method.name.c_str(), index, plan.backend.c_str(),
                   names.empty() ? "none" : names.c_str());
    }
    if (!backend->is_available()) {
      return error(Code::kBackend,
                   "[%s] delegate %zu needs the backend '%s', which is not "
                   "available on this machine",
                   method.name.c_str(), index, plan.backend.c_str());
    }
    // One at a time: delegates of a backend share its state of this program.
    std::lock_guard lock(mutex_);
    DelegateInit init = init_of(plan.backend);
    init.payload = plan.payload;
    init.compile_specs = plan.compile_specs;
    init.method = method.name;
    Result<std::unique_ptr<Delegate>> delegate = backend->init(init);
    if (delegate.ok() && *delegate != nullptr) return delegate;
    const std::string where =
        method.name + ": delegate " + std::to_string(index) + " of " + plan.backend;
    if (!delegate) return delegate.status().within(where);
    return error(Code::kBackend, "[%s] the backend made no delegate", where.c_str());
  }

  // What a backend is told of the program. mutex_ is held for as long as it is used.
  DelegateInit init_of(const std::string& backend) {
    DelegateInit init;
    init.named_data = file_.get();
    init.threads = threads_;
    init.own_kernels = own_kernels_;
    init.max_memory = max_memory_;
    init.disk_cache = file_->cache();
    init.program_state = &states_[backend];
    return init;
  }

  // Those of the program's delegates, else of whoever has some.
  std::shared_ptr<Workers> find_workers() {
    std::vector<std::string> ids;
    for (const MethodPlan& method : methods_) {
      for (const DelegatePlan& delegate : method.delegates) ids.push_back(delegate.backend);
    }
    for (std::string& id : backend_names()) ids.push_back(std::move(id));
    std::lock_guard lock(mutex_);
    for (const std::string& id : ids) {
      const std::shared_ptr<Backend> backend = find_backend(id);
      if (backend == nullptr || !backend->is_available()) continue;
      std::shared_ptr<Workers> workers = backend->workers(init_of(id));
      if (workers != nullptr) return workers;
    }
    return nullptr;
  }

  const std::unique_ptr<PteFile> file_;  // first, so that it goes last
  const std::vector<MethodPlan> methods_;
  const int threads_;
  const bool own_kernels_;
  const size_t max_memory_;
  platform::Mutex mutex_;  // of states_ and of making delegates
  std::map<std::string, std::shared_ptr<BackendProgramState>> states_;
  std::unique_ptr<ProgramWorkers> workers_;  // null: one thread
};

Result<std::vector<MethodPlan>> read_methods(const PteFile& file) {
  std::vector<MethodPlan> methods;
  std::set<std::string, std::less<>> names;
  ItemBudget budget;
  if (const auto* plans = file.program().execution_plan()) {
    for (const fb::ExecutionPlan* source : *plans) {
      Result<MethodPlan> method = read_method(file, *source, budget);
      if (!method) return method.status();
      if (!names.insert(method->name).second) {
        return error(Code::kInvalidProgram, "[load] two methods have the name '%s'",
                     method->name.c_str());
      }
      methods.push_back(std::move(*method));
    }
  }
  if (methods.empty()) return error(Code::kInvalidProgram, "[load] the program has no method");
  find_shared_arenas(methods);
#ifndef EDGEWISE_BARE_METAL  // such programs are linked with the kernels that their file names
  for (MethodPlan& method : methods) method.fused = fuse_instructions(method);
#endif
  return methods;
}

Result<FileBytes> open_bytes(const std::string& path, const LoadOptions& options) {
  return options.verification == Verification::kFull ? FileBytes::read(path) : FileBytes::map(path);
}

Result<std::vector<std::unique_ptr<DataFile>>> open_data(const LoadOptions& options) {
  std::vector<std::unique_ptr<DataFile>> files;
  const auto add = [&](Result<FileBytes> bytes, std::string name) -> Status {
    if (!bytes) return bytes.status();
    auto file = DataFile::open(std::move(*bytes), std::move(name), options.verification);
    if (!file) return file.status();
    files.push_back(std::move(*file));
    return {};
  };
  for (const std::string& path : options.data_files) {
    EDGEWISE_RETURN_IF_ERROR(add(open_bytes(path, options), path));
  }
  for (size_t i = 0; i < options.data_buffers.size(); ++i) {
    EDGEWISE_RETURN_IF_ERROR(
        add(FileBytes::copy(options.data_buffers[i]), "bytes " + std::to_string(i)));
  }
  return files;
}

Result<std::shared_ptr<Program>> load(Result<FileBytes> bytes, const LoadOptions& options) {
  if (!bytes) return bytes.status();
  EDGEWISE_RETURN_IF_ERROR(check_cpu_level());
  if (options.threads < 0) {
    return error(Code::kInvalidArgument, "[load] threads must be 0 or more; got %d",
                 options.threads);
  }
  Result<std::vector<std::unique_ptr<DataFile>>> data = open_data(options);
  if (!data) return data.status();
  Result<std::unique_ptr<PteFile>> file =
      PteFile::open(std::move(*bytes), std::move(*data), options.verification);
  if (!file) return file.status();
#ifndef EDGEWISE_BARE_METAL  // where there are no files
  if (!options.cache_dir.empty()) {
    auto warn = options.warn;
    if (!warn) warn = [](const std::string& message) { platform::log(message.c_str()); };
    (*file)->open_cache({.folder = options.cache_dir,
                         .most_bytes = options.cache_bytes,
                         .verifies_all = options.verification == Verification::kFull,
                         .warn = std::move(warn)});
  }
#endif
  Result<std::vector<MethodPlan>> methods = read_methods(**file);
  EDGEWISE_RETURN_IF_ERROR((*file)->check_whole().within("load"));
  if (!methods) return methods.status();
  const int threads = options.threads > 0 ? options.threads : platform::physical_core_count();
  return std::shared_ptr<Program>(
      std::make_shared<LoadedProgram>(std::move(*file), std::move(*methods), threads, options));
}

}  // namespace

// The bytes are made inside of guarded(), as that allocates, too.
Result<std::shared_ptr<Program>> Program::load_file(const std::string& path,
                                                    const LoadOptions& options) {
  return guarded("load", [&] { return load(open_bytes(path, options), options); });
}

Result<std::shared_ptr<Program>> Program::load_bytes(std::span<const std::byte> bytes,
                                                     const LoadOptions& options) {
  return guarded("load", [&] { return load(FileBytes::copy(bytes), options); });
}

Result<std::shared_ptr<Program>> Program::load_in_place(std::span<const std::byte> bytes,
                                                        const LoadOptions& options) {
  return guarded("load", [&] { return load(FileBytes::in_place(bytes), options); });
}

}  // namespace edgewise
