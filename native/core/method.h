// One instance of a method: its memory, value table, delegates and interpreter.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "edgewise/backend.h"
#include "edgewise/kernel.h"
#include "edgewise/program.h"
#include "input_sizes.h"
#include "method_memory.h"
#include "method_plan.h"

namespace edgewise {

class PteFile;

// Makes delegate `index` of the method.
using DelegateFactory = std::function<Result<std::unique_ptr<Delegate>>(size_t index)>;

class MethodInstance : public Method {
 public:
  // `file`, `plan` and `workers` (null: none) live as long as `program`. max_memory: as
  // LoadOptions.
  static Result<std::unique_ptr<Method>> create(std::shared_ptr<const Program> program,
                                                const PteFile& file, const MethodPlan& plan,
                                                std::shared_ptr<Session> session, size_t max_memory,
                                                Workers* workers,
                                                const DelegateFactory& make_delegate);

  const MethodInfo& info() const override { return plan_.info; }
  Status set_input(size_t index, const Value& value) override;
  Status set_input_zero_copy(size_t index, const Value& value) override;
  const Value* written_input(size_t index) const override;
  const Value* attribute(std::string_view name) const override;
  using Method::execute;
  Status execute(RunProfile* profile) override;
  void set_cancel_check(std::function<bool()> check) override { cancel_check_ = std::move(check); }
  const Value* output(size_t index) const override;
  bool bind_output(size_t index, void* data, size_t capacity_bytes) override;
  std::vector<std::vector<DelegateOperation>> delegate_operations() override;
  Status reset() override;

 private:
  enum class Known : uint8_t { kUnknown, kNo, kYes };

  struct Fused {
    const FusedCall* plan;
    const Kernel* kernel;
    std::vector<Value*> arguments;
  };

  MethodInstance(std::shared_ptr<const Program> program, const PteFile& file,
                 const MethodPlan& plan, size_t max_memory, Workers* workers)
      : program_(std::move(program)),
        file_(file),
        plan_(plan),
        max_memory_(max_memory),
        workers_(workers) {}

  Status resolve_kernels();
  void resolve_fused_calls();
  Status fill_values();
  Status fill_value(const ValuePlan& source, Value& value);
  void find_input_rules();
  void apply_binding(size_t index);
  // Checks the index; `give` checks the value and stores it.
  template <typename Give>
  Status take_input(size_t index, Give&& give);
  bool can_read_in_place(size_t index);
  void take_back(size_t index);
  Status check_equal_sizes() const;
  Status check_file() const;
  Status run_guarded(RunProfile* profile);

  Status run(RunProfile* profile);
  bool is_cancelled();
  Status run_profiled(RunProfile& profile);
  Status run_call(const InstructionPlan& instruction, std::span<Value* const> arguments,
                  RunProfile* profile);
  Status run_kernel(const Kernel& kernel, std::span<Value* const> arguments);
  Status run_fused(const Fused& fused);
  Status move(uint32_t from, uint32_t to);
  Result<bool> test(uint32_t value) const;
  Status free(uint32_t value);
  std::string describe(size_t instruction) const;

  std::shared_ptr<const Program> program_;  // first, so that it goes last
  const PteFile& file_;
  const MethodPlan& plan_;
  const size_t max_memory_;  // as LoadOptions
  Workers* const workers_;   // of the program, for kernels; null: one thread
  MethodMemory memory_;
  std::vector<Value> values_;           // never resized: lists point into it
  std::vector<const Kernel*> kernels_;  // of plan_.operators; null if not used
  std::vector<std::unique_ptr<Delegate>> delegates_;
  std::vector<Value*> arguments_;                          // of all instructions
  std::vector<std::pair<size_t, size_t>> argument_spans_;  // of each: begin and count
  Value none_;
  std::vector<Fused> fused_;
  std::vector<const Fused*> fused_at_;  // of each instruction: that begins here; or empty
  std::vector<bool> input_set_;
  std::vector<bool> input_kept_;  // stays as it is over an execution
  std::vector<bool> input_written_;
  std::vector<EqualSizes> equal_sizes_;  // of inputs
  std::vector<bool> input_fixed_;        // a number that no instruction reads
  std::vector<void*> bindings_;          // of outputs: the caller's memory, or null
  std::vector<Known> bindable_;
  std::vector<Known> zero_copy_;
  std::vector<bool> input_in_place_;  // is in the caller's memory
  std::function<bool()> cancel_check_;
  int64_t next_check_ = 0;  // by profile_clock()
  size_t last_events_ = 0;  // of the last run that was profiled
};

}  // namespace edgewise
