// Calls of XNNPACK's operator interface, whose arguments differ between its versions and between
// operators of one kind: code caches and alignments are gone, workspaces came to some and went from
// others. What a function takes is seen when this is compiled.
#pragma once

#include <xnnpack.h>

#include <concepts>
#include <cstddef>
#include <type_traits>

namespace edgewise::xnnpack {

// The three functions of an operator, and its name. See EDGEWISE_XNN_OPERATOR.
template <typename Create, typename Reshape, typename Setup>
struct OperatorFunctions {
  const char* name;
  Create create;
  Reshape reshape;
  Setup setup;
};
template <typename Create, typename Reshape, typename Setup>
OperatorFunctions(const char*, Create, Reshape, Setup) -> OperatorFunctions<Create, Reshape, Setup>;

#define EDGEWISE_XNN_OPERATOR(name) \
  OperatorFunctions { #name, xnn_create_##name, xnn_reshape_##name, xnn_setup_##name }

// Of a tensor's elements, whatever XNNPACK calls their type.
struct Address {
  void* data = nullptr;
  Address() = default;
  Address(const void* address) : data(const_cast<void*>(address)) {}
  template <typename T>
  requires(!std::same_as<std::remove_const_t<T>, xnn_quantization_params>) operator T*() const {
    return static_cast<T*>(data);
  }
};

// Memory that an operator needs while it runs.
struct Workspace {
  void* data = nullptr;
  template <std::same_as<void> T>
  operator T*() const {
    return data;
  }
};

// Of each row of a tensor that is quantized at run time.
struct RowParams {
  xnn_quantization_params* data = nullptr;
  template <typename T>
  requires std::same_as<std::remove_const_t<T>, xnn_quantization_params>
  operator T*() const { return data; }
};

template <typename Create, typename... Arguments>
xnn_status create_packed(Create create, xnn_weights_cache_t weights, xnn_operator_t* op,
                         Arguments... arguments) {
  if constexpr (std::is_invocable_v<Create, Arguments..., xnn_weights_cache_t, xnn_operator_t*>) {
    return create(arguments..., weights, op);
  } else {
    return create(arguments..., nullptr, weights, op);
  }
}

template <typename Create>
xnn_status create_unary(Create create, xnn_unary_operator type, xnn_datatype from, xnn_datatype to,
                        const xnn_unary_params& params, const xnn_quantization_params& in,
                        const xnn_quantization_params& out, xnn_operator_t* op) {
  if constexpr (std::is_invocable_v<Create, xnn_unary_operator, xnn_datatype, xnn_datatype,
                                    const xnn_unary_params*, const xnn_quantization_params*,
                                    const xnn_quantization_params*, uint32_t, xnn_operator_t*>) {
    return create(type, from, to, &params, &in, &out, 0, op);
  } else {  // a table of results, which it makes if there is none
    return create(type, from, to, &params, nullptr, &in, &out, 0, op);
  }
}

// `workspace`: set to the bytes that it needs, unless it is null: then it is to do without.
template <typename Reshape, typename... Sizes>
xnn_status call_reshape(Reshape reshape, xnn_operator_t op, size_t* workspace,
                        pthreadpool_t threads, Sizes... sizes) {
  if (workspace != nullptr) *workspace = 0;
  [[maybe_unused]] size_t alignment = 1;
  if constexpr (std::is_invocable_v<Reshape, xnn_operator_t, Sizes..., size_t*, size_t*,
                                    pthreadpool_t>) {
    return reshape(op, sizes..., workspace, workspace == nullptr ? nullptr : &alignment, threads);
  } else if constexpr (std::is_invocable_v<Reshape, xnn_operator_t, Sizes..., size_t*,
                                           pthreadpool_t>) {
    return reshape(op, sizes..., workspace, threads);
  } else {
    return reshape(op, sizes..., threads);
  }
}

// Of an operator that gives the size of its result.
template <typename Reshape, typename... Sizes>
xnn_status call_reshape_window(Reshape reshape, xnn_operator_t op, size_t* workspace,
                               pthreadpool_t threads, size_t* height, size_t* width,
                               Sizes... sizes) {
  *workspace = 0;
  [[maybe_unused]] size_t alignment = 1;
  if constexpr (std::is_invocable_v<Reshape, xnn_operator_t, Sizes..., size_t*, size_t*, size_t*,
                                    size_t*, pthreadpool_t>) {
    return reshape(op, sizes..., workspace, &alignment, height, width, threads);
  } else if constexpr (std::is_invocable_v<Reshape, xnn_operator_t, Sizes..., size_t*, size_t*,
                                           size_t*, pthreadpool_t>) {
    return reshape(op, sizes..., workspace, height, width, threads);
  } else {
    return reshape(op, sizes..., height, width, threads);
  }
}

template <typename Setup>
xnn_status call_setup(Setup setup, xnn_operator_t op, Workspace workspace, Address input,
                      Address output, RowParams params) {
  if constexpr (std::is_invocable_v<Setup, xnn_operator_t, Address, Address>) {
    return setup(op, input, output);
  } else if constexpr (std::is_invocable_v<Setup, xnn_operator_t, Workspace, Address, Address>) {
    return setup(op, workspace, input, output);
  } else if constexpr (std::is_invocable_v<Setup, xnn_operator_t, Address, Address, RowParams>) {
    return setup(op, input, output, params);
  } else if constexpr (std::is_invocable_v<Setup, xnn_operator_t, Workspace, Address, Address,
                                           RowParams>) {
    return setup(op, workspace, input, output, params);
  } else if constexpr (std::is_invocable_v<Setup, xnn_operator_t, Address, Address, Workspace,
                                           RowParams>) {
    return setup(op, input, output, workspace, params);
  } else {  // row sums, for kernels of 2-bit weights
    return setup(op, input, output, nullptr, params);
  }
}

}  // namespace edgewise::xnnpack
