# 64-bit Arm Linux, with Debian's cross compiler (g++-aarch64-linux-gnu):
#   cmake -S . -B build/cross/aarch64 --toolchain cmake/toolchains/linux-aarch64.cmake
# Programs run on this machine under qemu-user, if that is installed.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(edgewise_triplet aarch64-linux-gnu)
set(edgewise_emulator qemu-aarch64)
include("${CMAKE_CURRENT_LIST_DIR}/debian-cross.cmake")
