# The targets that ExecuTorch's pages and releases link, as other names of ours, for projects that
# say add_subdirectory(executorch): their CMakeLists.txt stays as it is.
include_guard(GLOBAL)

# Theirs, and ours. One library is several of theirs: linking it more than once costs nothing.
set(edgewise_executorch_names
  executorch=edgewise_runtime
  executorch_core=edgewise_runtime
  executorch_module_static=edgewise_runtime
  executorch_tensor=edgewise_runtime
  extension_data_loader=edgewise_runtime
  extension_module_static=edgewise_runtime
  extension_tensor=edgewise_runtime
  optimized_native_cpu_ops_lib=edgewise_kernels_whole
  portable_ops_lib=edgewise_kernels_whole)
if(EXECUTORCH_BUILD_XNNPACK)
  list(APPEND edgewise_executorch_names xnnpack_backend=edgewise_xnnpack_backend_whole)
endif()
foreach(pair IN LISTS edgewise_executorch_names)
  string(REPLACE "=" ";" pair "${pair}")
  list(GET pair 0 name)
  list(GET pair 1 target)
  if(NOT TARGET ${name})
    add_library(${name} ALIAS ${target})
  endif()
endforeach()
