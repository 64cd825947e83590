// The kernels' view of their arguments, and both registries.
#include "edgewise/kernel.h"

#include <gtest/gtest.h>

#include "edgewise/backend.h"

namespace edgewise {
namespace {

class Arguments {
 public:
  explicit Arguments(std::vector<Value> values) : values_(std::move(values)) {
    for (Value& value : values_) pointers_.push_back(&value);
  }
  KernelContext context() { return {"test::op", pointers_}; }

 private:
  std::vector<Value> values_;
  std::vector<Value*> pointers_;
};

Value tensor(void* data) {
  const int64_t sizes[] = {2};
  return Value(*Tensor::make(ScalarType::kFloat, sizes, {}, data, 8, Dynamism::kStatic));
}

TEST(KernelContext, ReadsEveryKind) {
  float data[2] = {};
  const Value three(int64_t{3});
  const Value four(int64_t{4});
  Value item = tensor(data);
  Arguments arguments({Value(int64_t{7}), Value(true), Value(2.5), Value(), tensor(data),
                       Value(IntList{{&three, &four}}), Value(DoubleList{{0.5}}),
                       Value(TensorList{{&item, nullptr}, true}), Value(std::string("mean")),
                       Value(int64_t{6})});
  KernelContext context = arguments.context();
  EXPECT_EQ(context.integer(0), 7);
  EXPECT_EQ(context.integer(1), 1);
  EXPECT_EQ(context.number(0), 7.0);
  EXPECT_EQ(context.number(2), 2.5);
  EXPECT_TRUE(context.boolean(1));
  EXPECT_EQ(context.scalar(2).kind, Scalar::Kind::kDouble);
  EXPECT_EQ(context.scalar(1).kind, Scalar::Kind::kBool);
  EXPECT_EQ(context.optional_integer(3), std::nullopt);
  EXPECT_EQ(context.optional_number(3), std::nullopt);
  EXPECT_EQ(context.optional_boolean(1), true);
  EXPECT_EQ(context.optional_tensor(3), nullptr);
  EXPECT_NE(context.optional_tensor(4), nullptr);
  EXPECT_NE(context.out(4), nullptr);
  EXPECT_EQ(context.int_list(5), (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(context.int_list(0), (std::vector<int64_t>{7}));
  EXPECT_EQ(context.optional_int_list(3), std::nullopt);
  EXPECT_EQ(context.optional_double_list(6), (std::vector<double>{0.5}));
  EXPECT_EQ(context.tensor_list(7).size(), 2u);
  EXPECT_EQ(context.tensor_list(7)[1], nullptr);
  EXPECT_EQ(context.string(8), "mean");
  EXPECT_EQ(context.optional_scalar_type(9), ScalarType::kFloat);
  EXPECT_EQ(context.optional_scalar_type(3), std::nullopt);
  EXPECT_TRUE(context.ok()) << context.status().message();
}

TEST(KernelContext, RecordsTheFirstFailure) {
  float data[2] = {};
  const Value text(std::string("x"));
  Arguments arguments({Value(2.5), Value(), tensor(nullptr), tensor(data), Value(IntList{{&text}}),
                       Value(int64_t{99})});
  struct Case {
    void (*read)(KernelContext&);
    const char* message;
  };
  const Case cases[] = {
      {[](KernelContext& c) { (void)c.integer(0); },
       "[test::op] argument 0 must be an int; got float"},
      {[](KernelContext& c) { (void)c.integer(1); },
       "[test::op] argument 1 must be an int; got None"},
      {[](KernelContext& c) { (void)c.integer(9); },
       "[test::op] argument 9 is missing; the call has 6"},
      {[](KernelContext& c) { (void)c.number(3); },
       "[test::op] argument 3 must be a number; got Tensor"},
      {[](KernelContext& c) { (void)c.boolean(0); },
       "[test::op] argument 0 must be a bool; got float"},
      {[](KernelContext& c) { (void)c.tensor(0); },
       "[test::op] argument 0 must be a tensor; got float"},
      {[](KernelContext& c) { (void)c.tensor(2); },
       "[test::op] argument 2, float32[2], has no memory yet: nothing has written it"},
      {[](KernelContext& c) { (void)c.out(1); },
       "[test::op] argument 1 must be a tensor; got None"},
      {[](KernelContext& c) { (void)c.int_list(4); },
       "[test::op] argument 4, a list of ints, has an item of another kind"},
      {[](KernelContext& c) { (void)c.int_list(1); },
       "[test::op] argument 1 must be a list of ints; got None"},
      {[](KernelContext& c) { (void)c.tensor_list(4); },
       "[test::op] argument 4 must be a list of tensors; got int[]"},
      {[](KernelContext& c) { (void)c.string(1); },
       "[test::op] argument 1 must be a string; got None"},
      {[](KernelContext& c) { (void)c.optional_scalar_type(5); },
       "[test::op] argument 5 must be an element type; got number 99"},
  };
  for (const Case& c : cases) {
    KernelContext context = arguments.context();
    c.read(context);
    EXPECT_FALSE(context.ok());
    EXPECT_EQ(context.status().message(), c.message);
    (void)context.fail(Code::kInternal, "later");
    EXPECT_EQ(context.status().message(), c.message);
  }
}

Status nothing(KernelContext&) { return Status::ok_status(); }

TEST(Registry, TakesANameOnce) {
  EXPECT_EQ(find_kernel("registry::op.out"), nullptr);
  EXPECT_TRUE(register_kernel({"registry::op.out", 1, nothing}).ok());
  EXPECT_NE(find_kernel("registry::op.out"), nullptr);
  EXPECT_EQ(register_kernel({"registry::op.out", 1, nothing}).code(), Code::kInvalidArgument);
  EXPECT_FALSE(register_kernel({"", 1, nothing}).ok());
  EXPECT_FALSE(register_kernel({"registry::null", 1, nullptr}).ok());
  EXPECT_FALSE(register_backend("x", nullptr).ok());
  const std::vector<std::string> names = kernel_names();
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
}

TEST(Status, PutsThePlaceBeforeTheMessage) {
  const Status failure = error(Code::kIo, "[a] %s", std::string(3000, 'x').c_str());
  EXPECT_EQ(failure.message().size(), 3004u);
  EXPECT_TRUE(failure.within("b").message().starts_with("[b] [a] x"));
  EXPECT_TRUE(Status().within("b").ok());
  EXPECT_EQ(to_string(Code::kInvalidProgram), "invalid program");
}

}  // namespace
}  // namespace edgewise
