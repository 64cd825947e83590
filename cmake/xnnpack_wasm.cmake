# Read by XNNPACK's own build when it begins. Its sources have kernels for WebAssembly with SIMD, and
# lists of them, but no build with CMake takes these.
function(edgewise_add_wasm_kernels)
  foreach(kind wasm wasm32 wasmsimd wasmsimd32)
    string(TOUPPER "${kind}" name)
    include(cmake/gen/${kind}_microkernels.cmake)
    list(APPEND kernels ${PROD_${name}_MICROKERNEL_SRCS} ${PROD_${name}_ASM_MICROKERNEL_SRCS})
  endforeach()
  target_sources(microkernels-prod PRIVATE ${kernels})
  set_property(SOURCE ${kernels} APPEND_STRING PROPERTY COMPILE_FLAGS " -fno-math-errno")
  # Some have the intrinsics by Emscripten's header of this name, which needs others that Debian
  # leaves out.
  file(WRITE "${PROJECT_BINARY_DIR}/wasm/arm_neon.h" "#include <wasm_simd128.h>\n")
  target_include_directories(microkernels-prod BEFORE PRIVATE "${PROJECT_BINARY_DIR}/wasm")
endfunction()
cmake_language(DEFER CALL edgewise_add_wasm_kernels)
