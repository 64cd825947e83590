// A method as Python sees it: takes arrays, gives arrays, may be called by any thread.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "array_view.h"
#include "edgewise/program.h"
#include "outputs.h"

namespace edgewise::python {

// Who uses a session's methods. One thread at a time.
struct SessionLock {
  std::mutex mutex;
  std::atomic<std::thread::id> user{};
};

// A call of a method, from Python's arguments to Python's results.
struct CallProfile {
  int64_t begin = 0;  // nanoseconds, as profile_clock()
  int64_t end = 0;
  RunProfile run;
};

class MethodFace {
 public:
  MethodFace(std::unique_ptr<Method> method, std::shared_ptr<SessionLock> lock);
  ~MethodFace();

  const MethodInfo& info() const { return method_->info(); }

  // Runs the method on a sequence of inputs (arrays, numbers, None) and returns a list of
  // outputs that nothing overwrites. Calls from several threads run one after another;
  // the GIL is free meanwhile.
  // What a mutable buffer holds now; KeyError if there is none of this name.
  nanobind::object attribute(const std::string& name);
  nanobind::list execute(nanobind::handle inputs) { return execute(inputs, nullptr); }
  // The same, and where the time went.
  nanobind::tuple profile(nanobind::handle inputs);

  // For each delegate a list of (operation, sizes, kernel, nodes, refused kernels and their rules).
  nanobind::list delegate_operations();

  void reset();

 private:
  class Turn;
  struct Input;

  static bool was_signalled();
  Input read_input(nanobind::handle object, size_t index) const;
  nanobind::list execute(nanobind::handle inputs, RunProfile* profile);
  Status run(std::vector<Input>& inputs, std::vector<ArrayMemory>& bound, RunProfile* profile);
  Status give(Input& input, size_t index);
  // What the method has written to inputs, into the caller's arrays.
  void give_back(const std::vector<Input>& inputs) const;
  std::span<const uint8_t> dim_order(const ArrayView& array, size_t index,
                                     std::array<uint8_t, kMaxDims>& plain) const;

  std::unique_ptr<Method> method_;
  std::vector<bool> may_bind_;  // outputs of a shape known ahead
  std::shared_ptr<SessionLock> lock_;
};

}  // namespace edgewise::python
