# Arm's KleidiAI: products of rows quantized at run time with weights of 4 and 8 bits, on 64-bit Arm
# Linux.
# edgewise_use_kleidiai(target) adds the micro-kernels that are used, and no others, to a target with
# EDGEWISE_HAS_KLEIDIAI; without KleidiAI it adds nothing, and these products are XNNPACK's.
#
# Where it comes from, in this order:
#   1. an installed KleidiAI (CMAKE_PREFIX_PATH is searched);
#   2. Debian's package libkleidiai-dev, fetched with apt-get from the mirror this machine uses, and
#      kept in EDGEWISE_CACHE_DIR.
# -DEDGEWISE_KLEIDIAI_PROVIDER=system|debian demands one of them, off none.
include_guard(GLOBAL)
include(kleidiai_debian)
include(private_cache)

set(EDGEWISE_KLEIDIAI_PROVIDER "auto" CACHE STRING "auto, system, debian or off")
set_property(CACHE EDGEWISE_KLEIDIAI_PROVIDER PROPERTY STRINGS auto system debian off)

set(edgewise_kleidiai_kernel kai_matmul_clamp_f32_qai8dxp)
set(edgewise_kleidiai_kernels
  ${edgewise_kleidiai_kernel}1x4_qsi4c32p8x4_1x8_neon_dotprod
  ${edgewise_kleidiai_kernel}4x4_qsi4c32p8x4_4x8_neon_dotprod
  ${edgewise_kleidiai_kernel}1x8_qsi4c32p8x8_1x8x32_neon_dotprod
  ${edgewise_kleidiai_kernel}4x8_qsi4c32p8x8_4x8x32_neon_i8mm
  ${edgewise_kleidiai_kernel}1x8_qsi4cxp8x8_1x8x32_neon_dotprod
  ${edgewise_kleidiai_kernel}4x8_qsi4cxp8x8_8x8x32_neon_i8mm
  ${edgewise_kleidiai_kernel}4x8_qsi8cxp4x8_16x4_neon_i8mm)
set(edgewise_kleidiai_members
  kai_rhs_pack_nxk_qsi4c32p_qsu4c32s1s0.c.o
  kai_rhs_pack_nxk_qsi4cxp_qs4cxs1s0.c.o
  kai_rhs_pack_nxk_qsi8cxp_qsi8cx_neon.c.o)
foreach(kernel IN LISTS edgewise_kleidiai_kernels)
  list(APPEND edgewise_kleidiai_members ${kernel}.c.o)
endforeach()

# Takes the objects that are used out of `library`; sets `out_reason` if one is not there.
function(edgewise_kleidiai_objects out out_reason library)
  set(folder "${PROJECT_BINARY_DIR}/kleidiai")
  file(REMOVE_RECURSE "${folder}")
  file(MAKE_DIRECTORY "${folder}")
  set(objects ${edgewise_kleidiai_members})
  # Some kernels are in assembly beside what calls it, which differs by release.
  execute_process(COMMAND "${CMAKE_AR}" t "${library}" OUTPUT_VARIABLE members ERROR_QUIET)
  string(REGEX REPLACE "\n" ";" members "${members}")
  foreach(kernel IN LISTS edgewise_kleidiai_kernels)
    if("${kernel}_asm.S.o" IN_LIST members)
      list(APPEND objects ${kernel}_asm.S.o)
    endif()
  endforeach()
  execute_process(COMMAND "${CMAKE_AR}" x "${library}" ${objects}
                  WORKING_DIRECTORY "${folder}" ERROR_VARIABLE error RESULT_VARIABLE result)
  list(TRANSFORM objects PREPEND "${folder}/")
  foreach(object IN LISTS objects)
    if(NOT result EQUAL 0 OR NOT EXISTS "${object}")
      cmake_path(GET object FILENAME name)
      string(STRIP "${error}" error)
      set(${out_reason} "${library} lacks what is used of it: ${error}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  set(${out} "${objects}" PARENT_SCOPE)
endfunction()

function(edgewise_provide_kleidiai)
  set(provider "${EDGEWISE_KLEIDIAI_PROVIDER}")
  set(EDGEWISE_KLEIDIAI_OBJECTS "" CACHE INTERNAL "What is linked of KleidiAI")
  set(EDGEWISE_KLEIDIAI_PART "" CACHE INTERNAL "NAME=VERSION[=SHA256]")
  if(provider STREQUAL "off")
    return()
  endif()
  set(reasons "")
  set(objects "")
  if(NOT CMAKE_SYSTEM_NAME STREQUAL "Linux" OR NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
    if(provider STREQUAL "auto")
      return()
    endif()
    list(APPEND reasons "it is used on 64-bit Arm Linux alone")
    set(provider "")
  endif()
  if(provider MATCHES "^(auto|system)$")
    find_path(EDGEWISE_KLEIDIAI_INCLUDE_DIR kai/kai_common.h)
    find_library(EDGEWISE_KLEIDIAI_LIBRARY libkleidiai.a)
    mark_as_advanced(EDGEWISE_KLEIDIAI_INCLUDE_DIR EDGEWISE_KLEIDIAI_LIBRARY)
    set(reason "none is installed")
    if(EDGEWISE_KLEIDIAI_INCLUDE_DIR AND EDGEWISE_KLEIDIAI_LIBRARY)
      set(include "${EDGEWISE_KLEIDIAI_INCLUDE_DIR}")
      set(part "KleidiAI=local")
      edgewise_kleidiai_objects(objects reason "${EDGEWISE_KLEIDIAI_LIBRARY}")
    endif()
    list(APPEND reasons "installed library: ${reason}")
  endif()
  if(NOT objects AND provider MATCHES "^(auto|debian)$")
    edgewise_cached_fetch(folder reason kleidiai "${edgewise_debian_kleidiai_sha256}"
                          edgewise_kleidiai_fetch)
    if(folder)
      set(include "${folder}/usr/include/aarch64-linux-gnu")
      file(STRINGS "${folder}/part" part)
      edgewise_kleidiai_objects(objects reason
        "${folder}/usr/lib/aarch64-linux-gnu/libkleidiai.a")
    endif()
    list(APPEND reasons "Debian's package: ${reason}")
  endif()
  if(NOT objects)
    list(JOIN reasons "; " reasons)
    if(EDGEWISE_KLEIDIAI_PROVIDER STREQUAL "auto")
      message(STATUS "KleidiAI: none (${reasons}); "
                     "products of rows quantized at run time are XNNPACK's")
      return()
    endif()
    message(FATAL_ERROR "[edgewise] EDGEWISE_KLEIDIAI_PROVIDER must name where KleidiAI can be had; "
      "got '${EDGEWISE_KLEIDIAI_PROVIDER}' (${reasons}); try auto, or off")
  endif()
  message(STATUS "KleidiAI: ${part}")
  set(EDGEWISE_KLEIDIAI_OBJECTS "${objects}" CACHE INTERNAL "What is linked of KleidiAI")
  set(EDGEWISE_KLEIDIAI_HEADERS "${include}" CACHE INTERNAL "")
  set(EDGEWISE_KLEIDIAI_PART "${part}" CACHE INTERNAL "NAME=VERSION[=SHA256]")
endfunction()

edgewise_provide_kleidiai()

function(edgewise_use_kleidiai target)
  if(NOT EDGEWISE_KLEIDIAI_OBJECTS)
    return()
  endif()
  set_source_files_properties(${EDGEWISE_KLEIDIAI_OBJECTS} PROPERTIES
    EXTERNAL_OBJECT ON GENERATED ON)
  target_sources(${target} PRIVATE ${EDGEWISE_KLEIDIAI_OBJECTS})
  target_include_directories(${target} SYSTEM PRIVATE "${EDGEWISE_KLEIDIAI_HEADERS}")
  # Tests ask for it, too.
  target_compile_definitions(${target} PUBLIC "$<BUILD_INTERFACE:EDGEWISE_HAS_KLEIDIAI>")
endfunction()
