# 64-bit Windows, with Debian's MinGW-w64 (g++-mingw-w64-x86-64-posix):
#   cmake -S . -B build/cross/windows --toolchain cmake/toolchains/windows-x86_64.cmake
# Programs run on this machine under Wine, if that is installed.
set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(edgewise_triplet x86_64-w64-mingw32)
set(edgewise_compiler_variant -posix)  # with std::thread and std::mutex
set(edgewise_emulator wine)
include("${CMAKE_CURRENT_LIST_DIR}/debian-cross.cmake")
set(CMAKE_RC_COMPILER "${edgewise_triplet}-windres")
# The stack is aligned to 16 bytes there, which GCC forgets of vectors that it keeps on it.
set(CMAKE_C_FLAGS_INIT "-Wa,-muse-unaligned-vector-move")
set(CMAKE_CXX_FLAGS_INIT "${CMAKE_C_FLAGS_INIT}")
# So that programs find nothing missing where there is no MinGW.
set(CMAKE_EXE_LINKER_FLAGS_INIT "-static")
set(CMAKE_SHARED_LINKER_FLAGS_INIT "-static")
