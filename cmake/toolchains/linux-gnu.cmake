# What the toolchains for Debian's cross compilers have in common. Before it is included:
# edgewise_triplet, and edgewise_emulator (the program of qemu-user).
foreach(language C CXX)
  if(language STREQUAL "C")
    set(edgewise_compiler gcc)
  else()
    set(edgewise_compiler g++)
  endif()
  set(CMAKE_${language}_COMPILER "${edgewise_triplet}-${edgewise_compiler}")
endforeach()
set(CMAKE_ASM_COMPILER "${edgewise_triplet}-gcc")

# Libraries and headers are the target's, programs this machine's.
set(CMAKE_FIND_ROOT_PATH "/usr/${edgewise_triplet}")
set(CMAKE_LIBRARY_ARCHITECTURE "${edgewise_triplet}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE BOTH)  # find_package(edgewise) in any prefix

find_program(EDGEWISE_EMULATOR NAMES "${edgewise_emulator}" "${edgewise_emulator}-static")
if(EDGEWISE_EMULATOR)
  set(CMAKE_CROSSCOMPILING_EMULATOR "${EDGEWISE_EMULATOR};-L;/usr/${edgewise_triplet}")
endif()
