# Arm's KleidiAI, on 64-bit Arm: products of rows quantized at run time with weights of 4 and 8 bits;
# on CPUs with SME2 those of float32, float16 and 8-bit integers.
# edgewise_use_kleidiai(target) adds the micro-kernels that are used, and no others, to a target with
# EDGEWISE_HAS_KLEIDIAI; without KleidiAI it adds nothing, and these products are XNNPACK's.
#
# Where it comes from, in this order:
#   1. -DEDGEWISE_KLEIDIAI_SOURCE_DIR=...: because you asked for it;
#   2. an installed KleidiAI (CMAKE_PREFIX_PATH is searched), for Linux;
#   3. Debian's package libkleidiai-dev, fetched with apt-get from the mirror this machine uses, and
#      kept in EDGEWISE_CACHE_DIR, for Linux.
# -DEDGEWISE_KLEIDIAI_PROVIDER=source|system|debian demands one of them, off none.
include_guard(GLOBAL)
include(kleidiai_debian)
include(private_cache)

set(EDGEWISE_KLEIDIAI_SOURCE_DIR "" CACHE PATH "KleidiAI's sources")
set(EDGEWISE_KLEIDIAI_PROVIDER "auto" CACHE STRING "auto, source, system, debian or off")
set_property(CACHE EDGEWISE_KLEIDIAI_PROVIDER PROPERTY STRINGS auto source system debian off)

set(edgewise_kleidiai_kernel kai_matmul_clamp_f32_qai8dxp)
set(edgewise_kleidiai_kernels
  ${edgewise_kleidiai_kernel}1x4_qsi4c32p8x4_1x8_neon_dotprod
  ${edgewise_kleidiai_kernel}4x4_qsi4c32p8x4_4x8_neon_dotprod
  ${edgewise_kleidiai_kernel}1x8_qsi4c32p8x8_1x8x32_neon_dotprod
  ${edgewise_kleidiai_kernel}4x8_qsi4c32p8x8_4x8x32_neon_i8mm
  ${edgewise_kleidiai_kernel}1x8_qsi4cxp8x8_1x8x32_neon_dotprod
  ${edgewise_kleidiai_kernel}4x8_qsi4cxp8x8_8x8x32_neon_i8mm
  ${edgewise_kleidiai_kernel}4x8_qsi8cxp4x8_16x4_neon_i8mm
  kai_lhs_imatmul_pack_x32p2vlx1_x32p_sme
  kai_lhs_imatmul_pack_x16p2vlx2_x16p_sme
  kai_lhs_imatmul_pack_x8p2vlx4_x8p_sme
  kai_matmul_clamp_f32_f32p2vlx1_f32p2vlx1biasf32_sme2_mopa
  kai_matmul_clamp_f16_f16p2vlx2_f16p2vlx2_2vlx2vl_sme2_mopa
  kai_matmul_clamp_qai8_qai8p2vlx4_qsi8cxpsb2vlx4_2vlx2vl_sme2_mopa)
set(edgewise_kleidiai_files
  kai_rhs_pack_nxk_qsi4c32p_qsu4c32s1s0
  kai_rhs_pack_nxk_qsi4cxp_qs4cxs1s0
  kai_rhs_pack_nxk_qsi8cxp_qsi8cx_neon
  ${edgewise_kleidiai_kernels})

# The files of `folder` that are used; sets `out_reason` if one is not there.
function(edgewise_kleidiai_sources out out_reason folder)
  set(sources "")
  foreach(name IN LISTS edgewise_kleidiai_files)
    file(GLOB found CONFIGURE_DEPENDS "${folder}/kai/ukernels/matmul/*/${name}.c")
    if(NOT found)
      set(${out_reason} "${folder} has no ${name}.c" PARENT_SCOPE)
      return()
    endif()
    # Some kernels are in assembly beside what calls it, which differs by release.
    file(GLOB assembly CONFIGURE_DEPENDS "${folder}/kai/ukernels/matmul/*/${name}_asm.S")
    list(APPEND sources ${found} ${assembly})
  endforeach()
  # What kernels for SME share, in later releases.
  file(GLOB common CONFIGURE_DEPENDS "${folder}/kai/kai_common_sme_asm.S")
  list(APPEND sources ${common})
  set(${out} "${sources}" PARENT_SCOPE)
endfunction()

# Takes the objects that are used out of `library`; sets `out_reason` if one is not there.
function(edgewise_kleidiai_objects out out_reason library)
  set(folder "${PROJECT_BINARY_DIR}/kleidiai")
  file(REMOVE_RECURSE "${folder}")
  file(MAKE_DIRECTORY "${folder}")
  list(TRANSFORM edgewise_kleidiai_files APPEND .c.o OUTPUT_VARIABLE objects)
  execute_process(COMMAND "${CMAKE_AR}" t "${library}" OUTPUT_VARIABLE members ERROR_QUIET)
  string(REGEX REPLACE "\n" ";" members "${members}")
  # Some kernels are in assembly beside what calls it, which differs by release; so is what those
  # for SME share.
  foreach(name IN LISTS edgewise_kleidiai_kernels ITEMS kai_common_sme)
    if("${name}_asm.S.o" IN_LIST members)
      list(APPEND objects ${name}_asm.S.o)
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
  set(EDGEWISE_KLEIDIAI_SOURCES "" CACHE INTERNAL "What is compiled of KleidiAI")
  set(EDGEWISE_KLEIDIAI_OBJECTS "" CACHE INTERNAL "What is linked of KleidiAI")
  set(EDGEWISE_KLEIDIAI_PART "" CACHE INTERNAL "NAME=VERSION[=SHA256]")
  if(provider STREQUAL "off")
    return()
  endif()
  set(reasons "")
  set(sources "")
  set(objects "")
  set(is_arm OFF)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
    set(is_arm ON)
  endif()
  if(is_arm AND EDGEWISE_KLEIDIAI_SOURCE_DIR AND provider MATCHES "^(auto|source)$")
    cmake_path(ABSOLUTE_PATH EDGEWISE_KLEIDIAI_SOURCE_DIR NORMALIZE OUTPUT_VARIABLE include)
    edgewise_kleidiai_sources(sources reason "${include}")
    if(NOT sources)
      message(FATAL_ERROR "[edgewise] EDGEWISE_KLEIDIAI_SOURCE_DIR must hold KleidiAI 1.8 or later; "
        "${reason}; try a clone of the project")
    endif()
    set(version local)
    if(EXISTS "${include}/CMakeLists.txt")
      file(STRINGS "${include}/CMakeLists.txt" lines REGEX "^ +VERSION +[0-9.]+$")
      string(REGEX MATCH "[0-9.]+" version "${lines}")
    endif()
    set(part "KleidiAI=${version}")
    set(provider "")
  elseif(provider STREQUAL "source")
    list(APPEND reasons "EDGEWISE_KLEIDIAI_SOURCE_DIR is '${EDGEWISE_KLEIDIAI_SOURCE_DIR}'")
  endif()
  if(NOT sources AND NOT (is_arm AND CMAKE_SYSTEM_NAME STREQUAL "Linux"))
    if(provider STREQUAL "auto")
      return()
    endif()
    if(is_arm)
      list(APPEND reasons "but for Linux it must come as sources")
    else()
      list(APPEND reasons "it is used on 64-bit Arm alone")
    endif()
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
  if(NOT sources AND NOT objects)
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
  set(EDGEWISE_KLEIDIAI_SOURCES "${sources}" CACHE INTERNAL "What is compiled of KleidiAI")
  set(EDGEWISE_KLEIDIAI_OBJECTS "${objects}" CACHE INTERNAL "What is linked of KleidiAI")
  set(EDGEWISE_KLEIDIAI_HEADERS "${include}" CACHE INTERNAL "")
  set(EDGEWISE_KLEIDIAI_PART "${part}" CACHE INTERNAL "NAME=VERSION[=SHA256]")
endfunction()

edgewise_provide_kleidiai()
if(EDGEWISE_KLEIDIAI_SOURCES)
  enable_language(ASM)
endif()

function(edgewise_use_kleidiai target)
  if(NOT EDGEWISE_KLEIDIAI_OBJECTS AND NOT EDGEWISE_KLEIDIAI_SOURCES)
    return()
  endif()
  foreach(source IN LISTS EDGEWISE_KLEIDIAI_SOURCES)
    set(options -w)
    if(source MATCHES "i8mm")
      list(APPEND options -march=armv8.2-a+dotprod+i8mm)
    elseif(source MATCHES "dotprod")
      list(APPEND options -march=armv8.2-a+dotprod)
    elseif(source MATCHES "_sme")
      # No vectors of the compiler's own: a CPU may have SVE in its streaming mode alone.
      list(APPEND options -march=armv8.2-a+sve+sve2 -fno-tree-vectorize -fno-tree-slp-vectorize)
    endif()
    set_source_files_properties("${source}" PROPERTIES COMPILE_OPTIONS "${options}")
  endforeach()
  set_source_files_properties(${EDGEWISE_KLEIDIAI_OBJECTS} PROPERTIES
    EXTERNAL_OBJECT ON GENERATED ON)
  target_sources(${target} PRIVATE ${EDGEWISE_KLEIDIAI_OBJECTS} ${EDGEWISE_KLEIDIAI_SOURCES})
  target_include_directories(${target} SYSTEM PRIVATE "${EDGEWISE_KLEIDIAI_HEADERS}")
  # Tests ask for it, too.
  target_compile_definitions(${target} PUBLIC "$<BUILD_INTERFACE:EDGEWISE_HAS_KLEIDIAI>")
endfunction()
