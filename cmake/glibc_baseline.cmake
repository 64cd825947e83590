# -DEDGEWISE_GLIBC=2.28: the shared libraries start on every Linux from that version of glibc on,
# whatever this machine has, and carry the C++ library: what a wheel for others needs. For GCC;
# programs cannot be linked so, see tools/glibc_stubs.py.
include_guard(GLOBAL)

set(EDGEWISE_GLIBC "" CACHE STRING
    "Shared libraries run with this version of glibc or later; empty: with this machine's")
if(EDGEWISE_GLIBC)
  find_package(Python 3.10 REQUIRED COMPONENTS Interpreter)
  set(edgewise_glibc_stubs "${PROJECT_BINARY_DIR}/glibc-${EDGEWISE_GLIBC}")
  execute_process(
    COMMAND "${Python_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/tools/glibc_stubs.py"
            --cc "${CMAKE_C_COMPILER}" --glibc "${EDGEWISE_GLIBC}" "${edgewise_glibc_stubs}"
    RESULT_VARIABLE edgewise_glibc_result ERROR_VARIABLE edgewise_glibc_error)
  if(NOT edgewise_glibc_result EQUAL 0)
    message(FATAL_ERROR "[edgewise] EDGEWISE_GLIBC=${EDGEWISE_GLIBC} needs GCC, binutils and "
      "glibc; got:\n${edgewise_glibc_error}")
  endif()
endif()

# For a target that is a shared library; nothing without EDGEWISE_GLIBC.
function(edgewise_glibc_baseline target)
  if(NOT EDGEWISE_GLIBC)
    return()
  endif()
  target_sources(${target} PRIVATE "${PROJECT_SOURCE_DIR}/native/glibc_baseline.c")
  target_link_options(${target} PRIVATE
    "-L${edgewise_glibc_stubs}" -static-libstdc++ -static-libgcc LINKER:--exclude-libs,ALL)
endfunction()
