# Target edgewise_options: how all of edgewise's own C++ is compiled. Link it PUBLIC or
# PRIVATE; users of the installed libraries get only the include directory and C++20.
include_guard(GLOBAL)

add_library(edgewise_options INTERFACE)
target_include_directories(edgewise_options INTERFACE
  "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/native/include>"
  "$<INSTALL_INTERFACE:include>")
target_compile_features(edgewise_options INTERFACE cxx_std_20)

# Without an operating system: no threads, files, exceptions; see docs/microcontrollers.md.
if(CMAKE_SYSTEM_NAME STREQUAL "Generic")
  set(edgewise_bare_default ON)
else()
  set(edgewise_bare_default OFF)
endif()
option(EDGEWISE_BARE_METAL "For programs without an operating system" ${edgewise_bare_default})

set(edgewise_compile_flags -Wall -Wextra -Wshadow -fvisibility=hidden
                           "$<$<COMPILE_LANGUAGE:CXX>:-fvisibility-inlines-hidden>")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  list(APPEND edgewise_compile_flags -Wno-restrict)  # GCC 12 warns of std::string's own code
endif()
if(edgewise_is_wheel)  # two builds give the same bytes, wherever they are made
  list(APPEND edgewise_compile_flags "-ffile-prefix-map=${PROJECT_SOURCE_DIR}=edgewise"
              "-ffile-prefix-map=${PROJECT_BINARY_DIR}=build")
endif()
if(EDGEWISE_BARE_METAL)
  target_compile_definitions(edgewise_options INTERFACE EDGEWISE_BARE_METAL)
  # uint32_t is a long there, and as large as an int.
  list(APPEND edgewise_compile_flags -ffunction-sections -fdata-sections -Wno-format
              "$<$<COMPILE_LANGUAGE:CXX>:-fno-exceptions;-fno-rtti;-fno-threadsafe-statics>"
              "$<$<COMPILE_LANGUAGE:CXX>:-fno-use-cxa-atexit>")
endif()
if(MINGW)
  # GCC keeps values in registers that a function of this file leaves alone. The linker may take the
  # same function from another file, compiled in another way, and Windows has no symbols that say so.
  list(APPEND edgewise_compile_flags -fno-ipa-ra)
endif()
if(EDGEWISE_WASM)
  list(APPEND edgewise_compile_flags
       "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-include ${PROJECT_SOURCE_DIR}/native/platform/web/libcxx.h>")
endif()
if(EDGEWISE_WERROR)
  list(APPEND edgewise_compile_flags -Werror)
endif()
if(EDGEWISE_BUILD_FUZZERS)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "[edgewise] EDGEWISE_BUILD_FUZZERS needs clang, for libFuzzer; got "
      "${CMAKE_CXX_COMPILER_ID}; try -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_C_COMPILER=clang")
  endif()
  list(APPEND edgewise_compile_flags -fsanitize=fuzzer-no-link)
endif()
if(EDGEWISE_SANITIZE)
  # Of conversions of floats too large for an integer, which "undefined" leaves out.
  set(edgewise_sanitizers address,undefined,float-cast-overflow)
  if(EDGEWISE_SANITIZE STREQUAL "thread")
    set(edgewise_sanitizers thread)
  endif()
  set(edgewise_sanitize_flags -fsanitize=${edgewise_sanitizers} -fno-sanitize-recover=all
                              -fno-omit-frame-pointer)
  # Lines are what reports show; whole types take a third of the time of compiling.
  list(APPEND edgewise_compile_flags ${edgewise_sanitize_flags} -g1)
  target_link_options(edgewise_options INTERFACE "$<BUILD_INTERFACE:${edgewise_sanitize_flags}>")
endif()
target_compile_options(edgewise_options INTERFACE "$<BUILD_INTERFACE:${edgewise_compile_flags}>")

# For code that runs once for each program or call: small rather than unrolled. Loops over
# elements keep the build type's own level.
set(edgewise_small_flags "$<$<CONFIG:Release>:-Os>")
