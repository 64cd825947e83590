// Backends run delegates: parts of a program that were compiled for them ahead of time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "edgewise/disk_cache.h"
#include "edgewise/operation.h"
#include "edgewise/profile.h"
#include "edgewise/status.h"
#include "edgewise/value.h"
#include "edgewise/workers.h"

namespace edgewise {

struct CompileSpec {
  std::string_view key;
  std::span<const std::byte> value;
};

// Blobs of the program that delegates refer to by name (weights, shared by content).
// They live as long as the program.
class NamedData {
 public:
  virtual ~NamedData() = default;
  virtual Result<std::span<const std::byte>> find(std::string_view key) const = 0;
  // Of all blobs together; 0 where it is not known.
  virtual size_t bytes() const { return 0; }
  // Says that `bytes`, which lie in one or several blobs and between them, will hardly be read
  // again. They stay what they are, but may have to come from the file once more.
  virtual void release(std::span<const std::byte> bytes) const { static_cast<void>(bytes); }
};

// What the delegates of one backend in one program share: weights cache, workspace,
// thread pool. Made by the backend when its first delegate in the program is made.
class BackendProgramState {
 public:
  virtual ~BackendProgramState() = default;
};

struct DelegateInit {
  std::span<const std::byte> payload;  // untrusted; outlives the delegate
  std::span<const CompileSpec> compile_specs;
  const NamedData* named_data = nullptr;  // outlives the delegate
  std::string_view method;                // name of the method that the delegate is part of
  int threads = 1;                        // that the caller asked for; >= 1
  bool own_kernels = true;                // as LoadOptions
  size_t max_memory = 0;                  // as LoadOptions, for what the delegate plans
  DiskCache* disk_cache = nullptr;        // LoadOptions::cache_dir, or null; outlives the delegate
  // Shared by this backend's delegates of the program; null at first, the backend sets it.
  std::shared_ptr<BackendProgramState>* program_state = nullptr;
};

class Delegate {
 public:
  virtual ~Delegate() = default;
  // `arguments`: the inputs, then the outputs, of the delegate call. Outputs are
  // resized by the delegate. Called by one thread at a time.
  virtual Status execute(std::span<Value* const> arguments) = 0;
  // Called before a run that is profiled, when no clock runs.
  virtual Status prepare_profile() { return {}; }
  // As execute(), adding to `profile` what its parts took, where it knows.
  virtual Status execute_profiled(std::span<Value* const> arguments, RunProfile& profile) {
    static_cast<void>(profile);
    return execute(arguments);
  }
  // What it runs for the sizes that it was made for, or saw last; empty if it does not tell.
  virtual std::vector<DelegateOperation> operations() { return {}; }
  // Whether argument `index` is an input that is read to its end and no further, so that nothing
  // readable need follow it (other inputs have kReadPadding bytes behind them).
  virtual bool reads_within(size_t index) const {
    static_cast<void>(index);
    return false;
  }
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual bool is_available() const { return true; }
  virtual Result<std::unique_ptr<Delegate>> init(const DelegateInit& init) = 0;
  // Threads for loops of a program's kernels; null: this backend has none. They are those of its
  // delegates in the program, if there are any: `init` is as theirs, but of no payload and method.
  // Asked once a program, when a loop is first to be shared: the backends of its delegates, then
  // all others.
  virtual std::shared_ptr<Workers> workers(const DelegateInit& init) {
    static_cast<void>(init);
    return nullptr;
  }
};

// Registers `backend` under an id ("XnnpackBackend"); a second registration of an id fails.
Status register_backend(std::string id, std::shared_ptr<Backend> backend);
// Null if there is none.
std::shared_ptr<Backend> find_backend(std::string_view id);
std::vector<std::string> backend_names();

}  // namespace edgewise
