# What the toolchains for Debian's cross compilers have in common. Before it is included:
# edgewise_triplet, edgewise_emulator (the program of qemu-user, or wine), and what the compilers'
# names end with, if it is anything: edgewise_compiler_variant.
foreach(language C CXX)
  if(language STREQUAL "C")
    set(edgewise_compiler gcc)
  else()
    set(edgewise_compiler g++)
  endif()
  set(CMAKE_${language}_COMPILER "${edgewise_triplet}-${edgewise_compiler}${edgewise_compiler_variant}")
endforeach()
set(CMAKE_ASM_COMPILER "${edgewise_triplet}-gcc${edgewise_compiler_variant}")

# Libraries and headers are the target's, programs this machine's.
set(CMAKE_FIND_ROOT_PATH "/usr/${edgewise_triplet}")
set(CMAKE_LIBRARY_ARCHITECTURE "${edgewise_triplet}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE BOTH)  # find_package(edgewise) in any prefix

find_program(EDGEWISE_EMULATOR NAMES "${edgewise_emulator}" "${edgewise_emulator}-static")
if(EDGEWISE_EMULATOR AND edgewise_emulator STREQUAL "wine")
  set(CMAKE_CROSSCOMPILING_EMULATOR "${EDGEWISE_EMULATOR}")
elseif(EDGEWISE_EMULATOR)
  set(CMAKE_CROSSCOMPILING_EMULATOR "${EDGEWISE_EMULATOR};-L;/usr/${edgewise_triplet}")
endif()
