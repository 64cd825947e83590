// Registers the backend under the id that files use.
#include "edgewise/backend.h"

#include "backends/xnnpack/delegate.h"
#include "backends/xnnpack/program_state.h"

namespace edgewise::xnnpack {
namespace {

// The program's, which is made for whoever is first.
Result<std::shared_ptr<ProgramState>> state_of(const DelegateInit& init) {
  std::shared_ptr<BackendProgramState> own;
  std::shared_ptr<BackendProgramState>& shared =
      init.program_state == nullptr ? own : *init.program_state;
  if (shared == nullptr) {
    auto made = ProgramState::make(init.threads);
    if (!made.ok()) return made.status();
    (*made)->weights().keep_in(init.disk_cache);
    (*made)->weights().expect(init.named_data == nullptr ? 0 : init.named_data->bytes());
    shared = std::move(*made);
  }
  return std::static_pointer_cast<ProgramState>(shared);
}

class XnnpackBackend final : public Backend {
 public:
  bool is_available() const override { return initialize_xnnpack() == xnn_status_success; }

  Result<std::unique_ptr<Delegate>> init(const DelegateInit& init) override {
    auto state = state_of(init);
    if (!state.ok()) return state.status();
    return XnnpackDelegate::make(init, std::move(*state));
  }

  // Kernels whose threads could not be started go on without.
  std::shared_ptr<Workers> workers(const DelegateInit& init) override {
    auto state = state_of(init);
    return state.ok() && (*state)->threadpool() != nullptr ? *state : nullptr;
  }
};

[[maybe_unused]] const bool is_registered =
    register_backend("XnnpackBackend", std::make_shared<XnnpackBackend>()).ok();

}  // namespace
}  // namespace edgewise::xnnpack
