// A backend in a shared library. Its payload is one float32, its delegates multiply by it.
#include <cstring>

#include "edgewise/backend_library.h"

namespace {

using edgewise::Code;
using edgewise::ScalarType;
using edgewise::Tensor;

class ScaleDelegate : public edgewise::Delegate {
 public:
  explicit ScaleDelegate(float factor) : factor_(factor) {}

  edgewise::Status execute(std::span<edgewise::Value* const> arguments) override {
    const Tensor* x = arguments.size() == 2 ? arguments[0]->get<Tensor>() : nullptr;
    Tensor* y = x == nullptr ? nullptr : arguments[1]->get<Tensor>();
    if (y == nullptr || x->type() != ScalarType::kFloat || y->type() != x->type()) {
      return edgewise::error(Code::kBackend, "a float32 input and output are wanted");
    }
    EDGEWISE_RETURN_IF_ERROR(y->resize(x->sizes()));
    for (int64_t i = 0; i < x->numel(); ++i) y->data<float>()[i] = factor_ * x->data<float>()[i];
    return {};
  }

 private:
  const float factor_;
};

class ScaleBackend : public edgewise::Backend {
  edgewise::Result<std::unique_ptr<edgewise::Delegate>> init(
      const edgewise::DelegateInit& init) override {
    float factor = 0;
    if (init.payload.size() != sizeof(factor)) {
      return edgewise::error(Code::kInvalidProgram, "the payload must have 4 bytes; got %zu",
                             init.payload.size());
    }
    std::memcpy(&factor, init.payload.data(), sizeof(factor));
    return std::unique_ptr<edgewise::Delegate>(new ScaleDelegate(factor));
  }
};

}  // namespace

EDGEWISE_REGISTER_BACKEND("ScaleBackend", ScaleBackend)
