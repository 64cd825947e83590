// The kernels and the backend of test_program.h.
#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string_view>

#include "edgewise/backend.h"
#include "edgewise/kernel.h"
#include "test_program.h"

namespace edgewise::test {

namespace {

Status add_into(KernelContext& context, const Tensor* a, const Tensor* b, Tensor* out) {
  if (!context.ok()) return context.status();
  if (a->type() != ScalarType::kFloat || b->type() != a->type() || out->type() != a->type() ||
      a->numel() != b->numel()) {
    return context.fail(Code::kInvalidArgument, "wants equal float tensors");
  }
  EDGEWISE_RETURN_IF_ERROR(out->resize(a->sizes()));
  for (int64_t i = 0; i < a->numel(); ++i) {
    out->data<float>()[i] = a->data<float>()[i] + b->data<float>()[i];
  }
  return Status::ok_status();
}

Status add(KernelContext& context) {
  const Tensor* a = context.tensor(0);
  const Tensor* b = context.tensor(1);
  return add_into(context, a, b, context.out(2));
}

Status add_in_place(KernelContext& context) {
  const Tensor* other = context.tensor(1);
  return add_into(context, context.tensor(0), other, context.out(0));
}

Status ramp(KernelContext& context) {
  const int64_t count = context.integer(0);
  Tensor* out = context.out(1);
  if (!context.ok()) return context.status();
  if (out->rank() != 1 || out->type() != ScalarType::kFloat || count > 1000) {
    return context.fail(Code::kInvalidArgument, "wants a short float vector");
  }
  const int64_t sizes[] = {count};
  EDGEWISE_RETURN_IF_ERROR(out->resize(sizes));
  std::iota(out->data<float>(), out->data<float>() + count, 0.0f);
  return Status::ok_status();
}

Status lists(KernelContext& context) {
  const std::vector<int64_t> a = context.int_list(0);
  const auto b = context.optional_double_list(1);
  Tensor* out = context.out(2);
  if (!context.ok()) return context.status();
  std::vector<float> all(a.begin(), a.end());
  if (b) all.insert(all.end(), b->begin(), b->end());
  const int64_t sizes[] = {static_cast<int64_t>(all.size())};
  EDGEWISE_RETURN_IF_ERROR(out->resize(sizes));
  std::ranges::copy(all, out->data<float>());
  return Status::ok_status();
}

Status positive(KernelContext& context) {
  const Tensor* a = context.tensor(0);
  Value* result = context.value(1);
  if (!context.ok()) return context.status();
  if (a->type() != ScalarType::kFloat || a->numel() == 0) {
    return context.fail(Code::kInvalidArgument, "wants floats");
  }
  *result = Value(a->data<float>()[0] > 0);
  return Status::ok_status();
}

Status fail(KernelContext& context) { return context.fail(Code::kUnsupported, "as asked for"); }

Status throws(KernelContext&) { throw std::runtime_error("thrown"); }

const KernelRegistration registrations[] = {
    {"test::add.out", 3, add},     {"test::add_", 2, add_in_place},
    {"test::ramp.out", 2, ramp},   {"test::positive", 2, positive},
    {"test::fail.out", 1, fail},   {"test::throws.out", 1, throws},
    {"test::lists.out", 3, lists},
};

struct TestState : BackendProgramState {};

class TestDelegate : public Delegate {
 public:
  explicit TestDelegate(bool fails) : fails_(fails) {}
  Status execute(std::span<Value* const> arguments) override {
    if (fails_) return error(Code::kBackend, "late, as asked for");
    if (arguments.size() != 2) return error(Code::kBackend, "wants two arguments");
    const Tensor* in = arguments[0]->get<Tensor>();
    Tensor* out = arguments[1]->get<Tensor>();
    if (in == nullptr || out == nullptr || in->type() != ScalarType::kFloat ||
        out->type() != ScalarType::kFloat || in->data<float>() == nullptr) {
      return error(Code::kBackend, "wants float tensors");
    }
    EDGEWISE_RETURN_IF_ERROR(out->resize(in->sizes()));
    for (int64_t i = 0; i < in->numel(); ++i) out->data<float>()[i] = 2 * in->data<float>()[i];
    return Status::ok_status();
  }
  bool reads_within(size_t index) const override { return index == 0; }
  Status execute_profiled(std::span<Value* const> arguments, RunProfile& profile) override {
    const int64_t begin = profile_clock();
    EDGEWISE_RETURN_IF_ERROR(execute(arguments));
    const auto numbers = static_cast<double>(arguments[0]->get<Tensor>()->numel());
    ProfilePart part{.name = "double", .nodes = {3}, .counters = {{"numbers", numbers}}};
    profile.add_part(std::move(part), begin, profile_clock());
    return {};
  }

 private:
  bool fails_;
};

class TestBackend : public Backend {
 public:
  Result<std::unique_ptr<Delegate>> init(const DelegateInit& init) override {
    TestBackendLog& log = backend_log();
    log.threads = init.threads;
    log.method = init.method;
    ++log.inits;
    if (*init.program_state == nullptr) {
      *init.program_state = std::make_shared<TestState>();
      ++log.states;
    }
    const std::string_view payload(reinterpret_cast<const char*>(init.payload.data()),
                                   init.payload.size());
    if (payload == "bad") return error(Code::kBackend, "bad, as asked for");
    if (payload == "named") {
      const auto found = init.named_data->find("key");
      if (!found) return found.status();
    }
    return std::unique_ptr<Delegate>(std::make_unique<TestDelegate>(payload == "late"));
  }
};

const Status backend_registered = register_backend("TestBackend", std::make_shared<TestBackend>());

}  // namespace

TestBackendLog& backend_log() {
  static TestBackendLog log;
  return log;
}

}  // namespace edgewise::test
