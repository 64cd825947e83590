// Whose threads a program's kernels share loops with, and when they are asked for.
#include <gtest/gtest.h>

#include "edgewise/backend.h"
#include "edgewise/kernel.h"
#include "test_program.h"

namespace edgewise::test {
namespace {

// Of a backend, or of all: what was asked, and what ran.
struct Probe : Workers {
  void run(size_t count, void (*task)(void* context, size_t index), void* context) override {
    ++loops;
    for (size_t i = count; i-- > 0;) task(context, i);
  }

  bool is_there = false;
  int asked = 0, loops = 0, threads = 0;
  std::shared_ptr<BackendProgramState>* state = nullptr;
};

class ProbeDelegate : public Delegate {
  Status execute(std::span<Value* const>) override { return {}; }
};

class ProbeBackend : public Backend {
 public:
  explicit ProbeBackend(std::shared_ptr<Probe> probe) : probe_(std::move(probe)) {}
  Result<std::unique_ptr<Delegate>> init(const DelegateInit& init) override {
    probe_->state = init.program_state;
    return std::unique_ptr<Delegate>(std::make_unique<ProbeDelegate>());
  }
  std::shared_ptr<Workers> workers(const DelegateInit& init) override {
    ++probe_->asked;
    probe_->threads = init.threads;
    if (probe_->state != nullptr) {
      EXPECT_EQ(init.program_state, probe_->state);
    }
    return probe_->is_there ? probe_ : nullptr;
  }

 private:
  std::shared_ptr<Probe> probe_;
};

// Before all others in the order of names.
const auto first = std::make_shared<Probe>(), second = std::make_shared<Probe>();
const bool are_registered =
    register_backend("AProbe1", std::make_shared<ProbeBackend>(first)).ok() &&
    register_backend("AProbe2", std::make_shared<ProbeBackend>(second)).ok();

// out[i] = i + 1, as a loop that is shared.
Status count_up(KernelContext& context) {
  const Tensor* x = context.tensor(0);
  Tensor* out = context.out(1);
  if (!context.ok()) return context.status();
  EDGEWISE_RETURN_IF_ERROR(out->resize(x->sizes()));
  for_each(context.workers(), static_cast<size_t>(out->numel()),
           [&](size_t i) { out->data<float>()[i] = static_cast<float>(i + 1); });
  return {};
}
const KernelRegistration registration("test::count_up.out", 2, count_up);

struct Case {
  const char* name;
  int threads;
  bool has_first, has_second;  // threads
  const char* delegate;        // whose the program has a delegate, or null
  bool shares;                 // whether a kernel has a loop to share
  int asked_first, asked_second;
  int loops_first, loops_second;  // of two methods, two calls of each
};

constexpr Case kCases[] = {
    {"one thread", 1, true, true, nullptr, true, 0, 0, 0, 0},
    {"no loop", 2, true, true, nullptr, false, 0, 0, 0, 0},
    {"no loop, but a delegate", 2, true, true, "AProbe2", false, 0, 0, 0, 0},
    {"whoever has some", 2, true, true, nullptr, true, 1, 0, 4, 0},
    {"the first has none", 3, false, true, nullptr, true, 1, 1, 0, 4},
    {"a delegate's before others", 2, true, true, "AProbe2", true, 0, 1, 0, 4},
    {"a delegate's has none", 2, true, false, "AProbe2", true, 1, 1, 4, 0},
};

TEST(Workers, AreAskedForWhenALoopIsFirstShared) {
  ASSERT_TRUE(are_registered);
  for (const Case& test : kCases) {
    SCOPED_TRACE(test.name);
    for (const auto& [probe, is_there] :
         {std::pair{first, test.has_first}, std::pair{second, test.has_second}}) {
      probe->is_there = is_there;
      probe->asked = probe->loops = 0;
      probe->state = nullptr;
    }
    FileSpec spec = add_file();
    MethodSpec& method = spec.methods[0];
    if (test.shares) {
      method.operators = {{"test::count_up", "out"}};
      method.instructions = {kernel(0, {0, 2, 2})};
    }
    if (test.delegate != nullptr) {
      method.delegates = {{test.delegate, fb::DataLocation::SEGMENT, 1}};
      spec.segments.push_back(bytes_of<char>({'x'}));
    }
    const auto program = Program::load_bytes(make_file(spec), {.threads = test.threads});
    ASSERT_TRUE(program.ok()) << program.status().message();
    for (int i = 0; i < 2; ++i) {
      auto loaded = (*program)->load_method("forward");
      ASSERT_TRUE(loaded.ok()) << loaded.status().message();
      std::vector<float> x(4);
      for (int call = 0; call < 2; ++call) {
        ASSERT_TRUE((*loaded)->set_input(0, over(x, ScalarType::kFloat, {4})).ok());
        ASSERT_TRUE((*loaded)->execute().ok());
        if (test.shares) {
          EXPECT_EQ(floats((*loaded)->output(0)), (std::vector<float>{1, 2, 3, 4}));
        }
      }
    }
    EXPECT_EQ(first->asked, test.asked_first);
    EXPECT_EQ(second->asked, test.asked_second);
    EXPECT_EQ(first->loops, test.loops_first);
    EXPECT_EQ(second->loops, test.loops_second);
    for (const auto& probe : {first, second}) {
      if (probe->asked > 0) {
        EXPECT_EQ(probe->threads, test.threads);
      }
    }
  }
}

}  // namespace
}  // namespace edgewise::test
