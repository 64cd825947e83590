// Loading a `.pte` file and running its methods.
//
//   auto program = edgewise::Program::load_file("model.pte", {});
//   auto method = (*program)->load_method("forward");
//   method->set_input(0, tensor);  method->execute();  method->output(0);
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "edgewise/operation.h"
#include "edgewise/profile.h"
#include "edgewise/status.h"
#include "edgewise/value.h"

namespace edgewise {

enum class Verification : uint8_t {
  kMinimal,              // header, magic and bounds only: for files that are trusted
  kInternalConsistency,  // the whole flatbuffer and every index, offset and size
  kFull,                 // the same of a copy: nobody can change what was checked
};

inline constexpr size_t kDefaultCacheBytes =
    sizeof(size_t) > 4 ? size_t{1} << 33 : size_t{1} << 30;  // 8 GiB, 1 GiB

struct LoadOptions {
  Verification verification = Verification::kInternalConsistency;
  int threads = 0;  // that a program shares its loops with; 0: one per physical core
  // Files (.ptd) that hold data of the program outside of it, by path (opened as the
  // program is) and by content (copied). Programs that map one file share its memory, and what
  // backends make of it.
  std::vector<std::string> data_files = {};
  std::vector<std::span<const std::byte>> data_buffers = {};
  // Whether backends may use kernels of their own where these are faster than their library's.
  bool own_kernels = true;
  // The most bytes that a method may plan for, with the state that methods share, that a tensor
  // whose size only the run tells may grow to, and that an XNNPACK delegate may plan for its
  // intermediate results; checked before anything is allocated. 0: no bound. Not counted: weights
  // that libraries pack, and what they take besides.
  size_t max_memory = 0;
  // A folder in which backends keep what they make of weights, so that later loads, and other
  // processes, map it (docs/runtime.md). It is made if it does not exist, and must be one that only
  // this user, or root, can write to. Empty: nothing is kept.
  std::string cache_dir = {};
  // The most bytes that may lie there: what was not used for longest is removed. 0: no bound.
  size_t cache_bytes = kDefaultCacheBytes;
  // Told what is wrong with the cache, in any thread that loads or runs; programs go on without
  // it. Empty: standard error.
  std::function<void(const std::string&)> warn = {};
};

// What a caller needs to know of an input or output before running.
inline constexpr int64_t kAnySize = -1;

struct ValueInfo {
  std::string kind;  // as Value::kind()
  ScalarType type = ScalarType::kFloat;
  std::vector<int64_t> sizes;  // upper bounds where the shape is dynamic
  std::vector<uint8_t> dim_order;
  Dynamism dynamism = Dynamism::kStatic;
  size_t nbytes = 0;
  // Of an input of a dynamic shape, where the file says more of it, by dimension: the size where it
  // is fixed all the same, kAnySize, or another negative number, of which equal ones stand for
  // equal sizes. Else empty.
  std::vector<int64_t> size_symbols;
};

// A mutable buffer that the file names.
struct AttributeInfo {
  std::string name;
  ValueInfo value;
};

struct DelegateInfo {
  std::string backend;
  size_t payload_bytes = 0;
};

// What an instruction does; `target` is the operator or the delegate of the method's lists that a
// call calls, else 0.
struct InstructionInfo {
  enum class Kind : uint8_t { kKernel, kDelegate, kMove, kJumpFalse, kFree } kind = Kind::kKernel;
  uint32_t target = 0;
};
// "kernel", "delegate", "move", "jump", "free".
std::string_view to_string(InstructionInfo::Kind kind);

struct MethodInfo {
  std::string name;
  std::vector<ValueInfo> inputs;
  std::vector<ValueInfo> outputs;
  std::vector<AttributeInfo> attributes;
  std::vector<size_t> planned_memory;  // bytes of each arena
  std::vector<DelegateInfo> delegates;
  std::vector<std::string> operators;  // "aten::add.out"
  size_t instruction_count = 0;
  std::vector<InstructionInfo> instructions;  // of all chains, one after the other
  std::string input_spec;                     // pytree specs in torch's JSON form; may be empty
  std::string output_spec;
};

class Method;

// State that the methods of a program have in common (see Program::new_session).
class Session;

// Loads a shared library of kernels (see kernel_library.h) for the life of the process and
// registers these. Returns their names. Fails, and registers none, if the file is no such library,
// was built against another version, or has a kernel whose name is taken.
Result<std::vector<std::string>> load_kernel_library(const std::string& path);
// The same for a shared library of backends (see backend_library.h): their ids.
Result<std::vector<std::string>> load_backend_library(const std::string& path);

// A loaded file. Thread-safe; methods keep it alive.
class Program : public std::enable_shared_from_this<Program> {
 public:
  virtual ~Program() = default;

  // Maps the file, or copies it if it is to be verified in full. Others must not write to a file
  // that is mapped. Where they cut it short, calls that read what is gone fail with Code::kIo: for
  // that, a handler of SIGBUS is installed for as long as a file is mapped (docs/runtime.md).
  static Result<std::shared_ptr<Program>> load_file(const std::string& path,
                                                    const LoadOptions& options);
  // Copies `bytes` to aligned memory.
  static Result<std::shared_ptr<Program>> load_bytes(std::span<const std::byte> bytes,
                                                     const LoadOptions& options);
  // Reads `bytes` where they are, such as in flash: they must be aligned to kBufferAlignment, be
  // followed by kReadPadding readable bytes, and stay as they are while the program is in use.
  static Result<std::shared_ptr<Program>> load_in_place(std::span<const std::byte> bytes,
                                                        const LoadOptions& options);

  virtual std::vector<std::string> method_names() const = 0;
  virtual Result<MethodInfo> method_info(std::string_view name) const = 0;
  // Methods of a program can share buffers, such as the cache that one method fills and
  // another one goes on with. Methods that are loaded into one session see the same buffers
  // and are used by one thread at a time; sessions have nothing but weights in common.
  virtual Result<std::shared_ptr<Session>> new_session() = 0;
  // Resolves operators, plans memory, makes delegates. Every call gives an independent
  // method with memory of its own, except for shared buffers: these are the session's, which
  // must be of this program. Without a session the method gets one for itself.
  virtual Result<std::unique_ptr<Method>> load_method(std::string_view name,
                                                      std::shared_ptr<Session> session) = 0;
  Result<std::unique_ptr<Method>> load_method(std::string_view name) {
    return load_method(name, nullptr);
  }
  virtual size_t size_bytes() const = 0;
};

// One instance of a method: values, memory, delegates. One thread at a time.
class Method {
 public:
  virtual ~Method() = default;

  virtual const MethodInfo& info() const = 0;

  // Copies a tensor's contents in (shape, type and dim_order are checked against the
  // method's; the message says which input and what it takes), or sets a scalar.
  virtual Status set_input(size_t index, const Value& value) = 0;
  // The same for one execution: a tensor's memory must stay as it is until execute() returns, which
  // reads it in place where the plan allows (an image that goes straight into a delegate).
  virtual Status set_input_zero_copy(size_t index, const Value& value) = 0;
  [[deprecated("use set_input_zero_copy(); this name goes in the next version")]] Status lend_input(
      size_t index, const Value& value) {
    return set_input_zero_copy(index, value);
  }
  Status execute() { return execute(nullptr); }
  // The same, and says where the time went if `profile` is given; of no use after a failure.
  virtual Status execute(RunProfile* profile) = 0;
  // `check` is asked about twenty times a second between instructions, in execute()'s thread; true
  // ends the call with Code::kCancelled, after which the method can be run again. Empty: never.
  virtual void set_cancel_check(std::function<bool()> check) = 0;
  // What the last execute() has left in input `index` if it is a tensor that the method writes
  // (x.add_(1)): set_input() copied it, so that the caller's is as it was. Null for inputs that are
  // only read. Valid until the input is set again.
  virtual const Value* written_input(size_t index) const = 0;
  // Valid until the next execute(). Null if out of range.
  virtual const Value* output(size_t index) const = 0;
  // What a mutable buffer of `info().attributes` holds now. Null if there is none of this name.
  // Valid until the next execute().
  virtual const Value* attribute(std::string_view name) const = 0;
  // Makes output `index` (a tensor) be written straight to the caller's memory from the
  // next execute() on, where the plan allows; returns false where it does not. The memory
  // must hold the output's (largest) size in `capacity_bytes`, be followed by kReadPadding
  // readable bytes, be aligned to the element type and outlive its use. Null undoes it.
  virtual bool bind_output(size_t index, void* data, size_t capacity_bytes) = 0;
  // What each delegate runs, for the sizes that it was made for, or saw last.
  virtual std::vector<std::vector<DelegateOperation>> delegate_operations() = 0;
  // Puts mutable state (buffers, the session's too) back to its initial values; zeros where
  // there are none.
  // Inputs are to be set again.
  virtual Status reset() = 0;
};

}  // namespace edgewise
