# WebAssembly with SIMD and threads, with Debian's Emscripten (emscripten, node-acorn):
#   cmake -S . -B build/web --toolchain cmake/toolchains/wasm32.cmake
# Programs run on this machine under Node.js, if that is installed.
#
# Emscripten's C library is that of a Linux; XNNPACK's build knows no system of the other name.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR wasm32)
set(EDGEWISE_WASM ON)  # EMSCRIPTEN would let pthreadpool do without threads
set(CMAKE_C_COMPILER emcc)
set(CMAKE_CXX_COMPILER em++)
set(CMAKE_ASM_COMPILER emcc)
set(CMAKE_AR emar CACHE FILEPATH "")
set(CMAKE_RANLIB emranlib CACHE FILEPATH "")
set(CMAKE_NM llvm-nm CACHE FILEPATH "")
foreach(language C CXX ASM)
  set(CMAKE_${language}_FLAGS_INIT "-msimd128 -pthread")
  set(CMAKE_${language}_COMPILER_TARGET wasm32-unknown-emscripten)
endforeach()
set(CMAKE_CXX_FLAGS_INIT "-msimd128 -pthread -fwasm-exceptions")
set(CMAKE_EXECUTABLE_SUFFIX_CXX ".js")
set(CMAKE_EXECUTABLE_SUFFIX_C ".js")
set(CMAKE_EXE_LINKER_FLAGS_INIT "-sALLOW_MEMORY_GROWTH -sMAXIMUM_MEMORY=4GB -sEXIT_RUNTIME")
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
set(CMAKE_HAVE_LIBC_PTHREAD ON)  # -pthread above

set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE BOTH)

find_program(EDGEWISE_EMULATOR NAMES node)
if(EDGEWISE_EMULATOR)
  # Emscripten's loader takes fetch() for a browser's; Node.js has had one since 18.
  set(CMAKE_CROSSCOMPILING_EMULATOR "${EDGEWISE_EMULATOR};--no-experimental-fetch")
endif()
