# macOS 11 or later on 64-bit Arm, with a clang and headers that `tools/install_cross.sh macos` takes
# from the Python package ziglang, and Debian's lld (lld-19, llvm-19):
#   cmake -S . -B build/cross/macos --toolchain cmake/toolchains/macos-aarch64.cmake
# Nothing runs its programs here.
set(CMAKE_SYSTEM_NAME Darwin)
set(CMAKE_SYSTEM_PROCESSOR arm64)  # as a Mac calls it
set(CMAKE_OSX_ARCHITECTURES arm64)
set(CMAKE_OSX_DEPLOYMENT_TARGET 11.0)

# Where tools/install_cross.sh put it.
file(SHA256 "${CMAKE_CURRENT_LIST_DIR}/../../tools/macos_sdk.py" edgewise_sdk)
string(SUBSTRING "${edgewise_sdk}" 0 12 edgewise_sdk)
set(edgewise_sdk "/edgewise/macos-${edgewise_sdk}/sdk")
if("$ENV{XDG_CACHE_HOME}" STREQUAL "")
  string(PREPEND edgewise_sdk "$ENV{HOME}/.cache")
else()
  string(PREPEND edgewise_sdk "$ENV{XDG_CACHE_HOME}")
endif()
set(CMAKE_OSX_SYSROOT "${edgewise_sdk}")
set(CMAKE_C_COMPILER "${edgewise_sdk}/bin/clang")
set(CMAKE_CXX_COMPILER "${edgewise_sdk}/bin/clang++")
set(CMAKE_ASM_COMPILER "${edgewise_sdk}/bin/clang")
set(CMAKE_USER_MAKE_RULES_OVERRIDE "${CMAKE_CURRENT_LIST_DIR}/macos-rpath.cmake")
foreach(kind EXE SHARED MODULE)
  set(CMAKE_${kind}_LINKER_FLAGS_INIT "-fuse-ld=lld")
endforeach()
set(CMAKE_AR "${edgewise_sdk}/bin/ar" CACHE FILEPATH "")
set(CMAKE_RANLIB "${edgewise_sdk}/bin/ranlib" CACHE FILEPATH "")
set(CMAKE_INSTALL_NAME_TOOL llvm-install-name-tool-19 CACHE FILEPATH "")

set(CMAKE_FIND_ROOT_PATH "${edgewise_sdk}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE BOTH)  # find_package(edgewise) in any prefix
