# Arm Cortex-M55 without an operating system, with Debian's cross compiler (gcc-arm-none-eabi,
# libstdc++-arm-none-eabi-newlib):
#   cmake -S . -B build/firmware --toolchain cmake/toolchains/cortex-m55.cmake
# Another Cortex-M: -DEDGEWISE_CPU_FLAGS="-mcpu=cortex-m7 -mfpu=fpv5-d16".
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR arm)
set(CMAKE_C_COMPILER arm-none-eabi-gcc)
set(CMAKE_CXX_COMPILER arm-none-eabi-g++)
set(CMAKE_ASM_COMPILER arm-none-eabi-gcc)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)  # there is nothing to link a program with

set(EDGEWISE_CPU_FLAGS "-mcpu=cortex-m55" CACHE STRING "What tells the compiler the CPU")
foreach(language C CXX ASM)
  set(CMAKE_${language}_FLAGS_INIT "${EDGEWISE_CPU_FLAGS} -mthumb -mfloat-abi=hard")
endforeach()

set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE BOTH)
