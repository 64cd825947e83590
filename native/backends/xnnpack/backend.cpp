// Registers the backend under the id that files use.
#include "edgewise/backend.h"

#include "backends/xnnpack/delegate.h"
#include "backends/xnnpack/program_state.h"

namespace edgewise::xnnpack {
namespace {

class XnnpackBackend final : public Backend {
 public:
  bool is_available() const override { return initialize_xnnpack() == xnn_status_success; }

  Result<std::unique_ptr<Delegate>> init(const DelegateInit& init) override {
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
    return XnnpackDelegate::make(init, std::static_pointer_cast<ProgramState>(shared));
  }
};

[[maybe_unused]] const bool is_registered =
    register_backend("XnnpackBackend", std::make_shared<XnnpackBackend>()).ok();

}  // namespace
}  // namespace edgewise::xnnpack
