# Target edgewise_xnnpack_dep: XNNPACK, pthreadpool, cpuinfo and their headers.
#
# Where they come from, in this order:
#   1. -DEDGEWISE_XNNPACK_SOURCE_DIR=...: built from there, because you asked for it;
#   2. an installed XNNPACK (CMAKE_PREFIX_PATH is searched) if recent enough;
#   3. Debian's source package, fetched with apt-get from the mirror this machine uses.
# What is built is kept in EDGEWISE_CACHE_DIR, outside the build tree.
# -DEDGEWISE_XNNPACK_PROVIDER=source|system|debian allows just one of them.
include_guard(GLOBAL)
include(xnnpack_build)

set(EDGEWISE_XNNPACK_SOURCE_DIR "" CACHE PATH "XNNPACK's sources, to build them")
set(EDGEWISE_XNNPACK_PROVIDER "auto" CACHE STRING "auto, source, system or debian")
set_property(CACHE EDGEWISE_XNNPACK_PROVIDER PROPERTY STRINGS auto source system debian)
find_package(Threads REQUIRED GLOBAL)  # for those, too, who add this project as a folder

# Sets `out_libraries` and `out_include` if an installed XNNPACK can be used, else `out_reason`.
function(edgewise_find_system_xnnpack out_libraries out_include out_reason)
  find_path(EDGEWISE_XNNPACK_INCLUDE_DIR xnnpack.h)
  find_library(EDGEWISE_XNNPACK_LIBRARY XNNPACK)
  find_library(EDGEWISE_PTHREADPOOL_LIBRARY pthreadpool)
  find_library(EDGEWISE_CPUINFO_LIBRARY cpuinfo)
  find_library(EDGEWISE_MICROKERNELS_LIBRARY microkernels-prod)  # beside a static XNNPACK
  mark_as_advanced(EDGEWISE_XNNPACK_INCLUDE_DIR EDGEWISE_XNNPACK_LIBRARY
    EDGEWISE_PTHREADPOOL_LIBRARY EDGEWISE_CPUINFO_LIBRARY EDGEWISE_MICROKERNELS_LIBRARY)
  set(${out_libraries} "" PARENT_SCOPE)
  foreach(part XNNPACK_INCLUDE_DIR XNNPACK_LIBRARY PTHREADPOOL_LIBRARY CPUINFO_LIBRARY)
    if(NOT EDGEWISE_${part})
      set(${out_reason} "none is installed" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  # The operator of all unary functions and 4-bit groups came in the same year as all else we need.
  file(READ "${EDGEWISE_XNNPACK_INCLUDE_DIR}/xnnpack.h" header)
  foreach(name xnn_create_unary_elementwise_nc xnn_create_binary_elementwise_nd xnn_create_reduce_nd
          xnn_datatype_qbint4 xnn_datatype_qdint8)
    if(NOT header MATCHES "${name}")
      set(${out_reason} "the one in ${EDGEWISE_XNNPACK_INCLUDE_DIR} is too old: no ${name}"
          PARENT_SCOPE)
      return()
    endif()
  endforeach()
  set(libraries "${EDGEWISE_XNNPACK_LIBRARY}")
  if(EDGEWISE_MICROKERNELS_LIBRARY)
    list(APPEND libraries "${EDGEWISE_MICROKERNELS_LIBRARY}")
  endif()
  list(APPEND libraries "${EDGEWISE_CPUINFO_LIBRARY}" "${EDGEWISE_PTHREADPOOL_LIBRARY}")
  set(${out_libraries} "${libraries}" PARENT_SCOPE)
  set(${out_include} "${EDGEWISE_XNNPACK_INCLUDE_DIR}" PARENT_SCOPE)
endfunction()

function(edgewise_add_xnnpack_dep include_dir)
  add_library(edgewise_xnnpack_dep INTERFACE IMPORTED GLOBAL)
  target_include_directories(edgewise_xnnpack_dep SYSTEM INTERFACE "${include_dir}")
  file(READ "${include_dir}/xnnpack.h" header)
  if(header MATCHES "xnn_create_resize_bilinear2d_nhwc_f32")  # later versions: one for all types
    target_compile_definitions(edgewise_xnnpack_dep INTERFACE EDGEWISE_XNNPACK_RESIZES_BY_TYPE)
  endif()
  set(group ${ARGN})
  if(NOT APPLE)  # whose linkers look into archives again by themselves
    list(JOIN ARGN "," group)
    set(group "$<LINK_GROUP:RESCAN,${group}>")
  endif()
  target_link_libraries(edgewise_xnnpack_dep INTERFACE
    ${group} Threads::Threads ${CMAKE_DL_LIBS} m $<$<BOOL:${ANDROID}>:log>)
  # Other libraries in a process (torch, ExecuTorch) carry an XNNPACK too: ours stays inside. Of
  # clang's sanitizers, which are archives, too, all of a process must see the allocator.
  if(CMAKE_SYSTEM_NAME MATCHES "Linux|Android" AND NOT EDGEWISE_SANITIZE AND NOT EDGEWISE_WASM)
    target_link_options(edgewise_xnnpack_dep INTERFACE "LINKER:--exclude-libs,ALL")
  endif()
endfunction()

# Sets EDGEWISE_XNNPACK_PARTS, what was built: NAME=VERSION[=SHA256] of each part.
function(edgewise_read_xnnpack_parts prefix)
  set(parts "")
  foreach(name XNNPACK pthreadpool cpuinfo FXdiv)
    string(TOLOWER "${name}" file)
    set(part "${file}=local")
    if(EXISTS "${prefix}/parts/${file}.part")
      file(STRINGS "${prefix}/parts/${file}.part" part)
    endif()
    string(REGEX REPLACE "^[^=]+" "${name}" part "${part}")
    list(APPEND parts "${part}")
  endforeach()
  set(EDGEWISE_XNNPACK_PARTS "${parts}" CACHE INTERNAL "What was built for XNNPACK")
endfunction()

function(edgewise_provide_xnnpack)
  set(provider "${EDGEWISE_XNNPACK_PROVIDER}")
  set(reasons "")
  set(prefix "")

  if(provider MATCHES "^(auto|source)$")
    if(EDGEWISE_XNNPACK_SOURCE_DIR)
      edgewise_build_xnnpack_from_directory(prefix "${EDGEWISE_XNNPACK_SOURCE_DIR}")
    else()
      list(APPEND reasons "source directory: EDGEWISE_XNNPACK_SOURCE_DIR is not set")
    endif()
  endif()

  if(NOT prefix AND provider MATCHES "^(auto|system)$")
    edgewise_find_system_xnnpack(libraries include_dir reason)
    if(libraries)
      message(STATUS "XNNPACK: the system's, ${EDGEWISE_XNNPACK_LIBRARY}")
      edgewise_add_xnnpack_dep("${include_dir}" ${libraries})
      set(EDGEWISE_XNNPACK_PREFIX "" CACHE INTERNAL "")
      set(EDGEWISE_XNNPACK_PARTS "" CACHE INTERNAL "")
      return()
    endif()
    list(APPEND reasons "installed library: ${reason}")
  endif()

  if(NOT prefix AND provider MATCHES "^(auto|debian)$")
    edgewise_build_xnnpack_from_debian(prefix reason)
    list(APPEND reasons "Debian's source package: ${reason}")
  endif()

  if(NOT prefix)
    list(JOIN reasons "; " reasons)
    message(FATAL_ERROR
      " [edgewise] XNNPACK of November 2024 or later is needed; got none (${reasons})\n"
      " try `apt-get install libxnnpack-dev libpthreadpool-dev libcpuinfo-dev` (Debian 13, Ubuntu "
      "25.04), EDGEWISE_XNNPACK_SOURCE_DIR (docs/packaging.md), or a wheel: "
      "`pip install --only-binary edgewise edgewise`\n")
  endif()

  message(STATUS "XNNPACK: ${prefix}")
  file(GLOB libraries "${prefix}/lib/*.a")
  edgewise_add_xnnpack_dep("${prefix}/include" ${libraries})
  set(EDGEWISE_XNNPACK_PREFIX "${prefix}" CACHE INTERNAL "The built XNNPACK; empty: system's")
  edgewise_read_xnnpack_parts("${prefix}")
endfunction()

edgewise_provide_xnnpack()
