# 32-bit Arm Linux, ARMv7-A with NEON and hard floats, with Debian's cross compiler
# (g++-arm-linux-gnueabihf):
#   cmake -S . -B build/cross/armv7 --toolchain cmake/toolchains/linux-armv7.cmake
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR armv7)
set(edgewise_triplet arm-linux-gnueabihf)
set(edgewise_emulator qemu-arm)
foreach(language C CXX)
  set(CMAKE_${language}_FLAGS_INIT "-march=armv7-a -mfpu=neon")
endforeach()
include("${CMAKE_CURRENT_LIST_DIR}/debian-cross.cmake")
