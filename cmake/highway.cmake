# Google Highway: vectors of each CPU's instructions, and the choice of them at run time.
# edgewise_use_highway(target) gives a target the headers.
#
# Where they come from, in this order:
#   1. -DEDGEWISE_HIGHWAY_SOURCE_DIR=...: because you asked for it;
#   2. an installed Highway (CMAKE_PREFIX_PATH is searched) if recent enough;
#   3. Debian's source package, fetched with apt-get from the mirror this machine uses, and kept in
#      EDGEWISE_CACHE_DIR.
# -DEDGEWISE_HIGHWAY_PROVIDER=source|system|debian allows just one of them.
include_guard(GLOBAL)
include(debian_source)
include(highway_debian)
include(private_cache)

set(EDGEWISE_HIGHWAY_SOURCE_DIR "" CACHE PATH "Highway's sources")
set(EDGEWISE_HIGHWAY_PROVIDER "auto" CACHE STRING "auto, source, system or debian")
set_property(CACHE EDGEWISE_HIGHWAY_PROVIDER PROPERTY STRINGS auto source system debian)
set(edgewise_highway_needed 1.2.0)

# Sets `out_version`, empty if `folder` holds no headers, and `out_reason` if it is too old.
function(edgewise_highway_version out_version out_reason folder)
  set(${out_version} "" PARENT_SCOPE)
  set(${out_reason} "${folder} has no hwy/highway.h" PARENT_SCOPE)
  if(NOT folder OR NOT EXISTS "${folder}/hwy/base.h")
    return()
  endif()
  file(STRINGS "${folder}/hwy/base.h" lines REGEX "^#define HWY_(MAJOR|MINOR|PATCH) ")
  if(NOT lines)  # before 1.1
    file(STRINGS "${folder}/hwy/highway.h" lines REGEX "^#define HWY_(MAJOR|MINOR|PATCH) ")
  endif()
  string(REGEX REPLACE "#define HWY_[A-Z]+ " "" numbers "${lines}")
  string(REPLACE ";" "." version "${numbers}")
  set(${out_version} "${version}" PARENT_SCOPE)
  set(${out_reason} "" PARENT_SCOPE)
  if(version VERSION_LESS edgewise_highway_needed)
    set(${out_reason} "the one in ${folder} is ${version}" PARENT_SCOPE)
  endif()
endfunction()

# Puts Debian's sources into `destination`, with what they are in `part`, or sets `out_reason`.
function(edgewise_highway_fetch out_reason work destination)
  message(STATUS "Highway: fetching Debian's source package")
  edgewise_debian_sources("${work}/sources" reason highway)
  set(${out_reason} "${reason}" PARENT_SCOPE)
  if(NOT reason)
    file(RENAME "${work}/sources/highway.part" "${work}/sources/highway/part")
    file(RENAME "${work}/sources/highway" "${destination}")
  endif()
endfunction()

# Sets `out` to NAME=VERSION=SHA256, of what Debian's package was.
function(edgewise_highway_part out file)
  file(STRINGS "${file}" part)
  string(REGEX REPLACE "^[^=]+" "Highway" part "${part}")
  set(${out} "${part}" PARENT_SCOPE)
endfunction()

function(edgewise_provide_highway)
  set(provider "${EDGEWISE_HIGHWAY_PROVIDER}")
  set(reasons "")
  set(source "")
  set(version "")
  set(EDGEWISE_HIGHWAY_FROM_SYSTEM OFF CACHE INTERNAL "Highway's library is the system's")
  if(provider MATCHES "^(auto|source)$")
    if(EDGEWISE_HIGHWAY_SOURCE_DIR)
      cmake_path(ABSOLUTE_PATH EDGEWISE_HIGHWAY_SOURCE_DIR NORMALIZE OUTPUT_VARIABLE source)
      edgewise_highway_version(version reason "${source}")
      if(reason)
        message(FATAL_ERROR "[edgewise] EDGEWISE_HIGHWAY_SOURCE_DIR must hold Highway "
          "${edgewise_highway_needed} or later; ${reason}; try a clone of the project")
      endif()
      set(part "Highway=local")
      if(EXISTS "${source}.part")  # beside what fetch_sources.cmake left
        edgewise_highway_part(part "${source}.part")
      endif()
    else()
      list(APPEND reasons "source directory: EDGEWISE_HIGHWAY_SOURCE_DIR is not set")
    endif()
  endif()
  if(NOT source AND provider MATCHES "^(auto|system)$")
    find_path(EDGEWISE_HIGHWAY_INCLUDE_DIR hwy/highway.h)
    find_library(EDGEWISE_HIGHWAY_LIBRARY hwy)
    mark_as_advanced(EDGEWISE_HIGHWAY_INCLUDE_DIR EDGEWISE_HIGHWAY_LIBRARY)
    set(reason "none is installed")
    if(EDGEWISE_HIGHWAY_INCLUDE_DIR AND EDGEWISE_HIGHWAY_LIBRARY)
      edgewise_highway_version(version reason "${EDGEWISE_HIGHWAY_INCLUDE_DIR}")
    endif()
    if(NOT reason)
      message(STATUS "Highway: the system's ${version}, ${EDGEWISE_HIGHWAY_LIBRARY}")
      set(EDGEWISE_HIGHWAY_HEADERS "${EDGEWISE_HIGHWAY_INCLUDE_DIR}" CACHE INTERNAL "")
      set(EDGEWISE_HIGHWAY_FROM_SYSTEM ON CACHE INTERNAL "Highway's library is the system's")
      set(EDGEWISE_HIGHWAY_PART "Highway=${version}" CACHE INTERNAL "NAME=VERSION[=SHA256]")
      return()
    endif()
    list(APPEND reasons "installed library: ${reason}")
  endif()
  if(NOT source AND provider MATCHES "^(auto|debian)$")
    edgewise_cached_fetch(source reason highway "${edgewise_debian_highway_sha256}"
                          edgewise_highway_fetch)
    list(APPEND reasons "Debian's source package: ${reason}")
    if(source)
      edgewise_highway_version(version reason "${source}")
      edgewise_highway_part(part "${source}/part")
    endif()
  endif()
  if(NOT source)
    list(JOIN reasons "; " reasons)
    message(FATAL_ERROR
      " [edgewise] Google Highway ${edgewise_highway_needed} or later is needed; got none "
      "(${reasons})\n"
      " try `apt-get install libhwy-dev` (Debian 13, Ubuntu 25.04), EDGEWISE_HIGHWAY_SOURCE_DIR "
      "(docs/packaging.md), or a wheel: `pip install --only-binary edgewise edgewise`\n")
  endif()
  message(STATUS "Highway: ${version}, ${source}")
  set(EDGEWISE_HIGHWAY_HEADERS "${source}" CACHE INTERNAL "")
  set(EDGEWISE_HIGHWAY_PART "${part}" CACHE INTERNAL "NAME=VERSION[=SHA256]")
endfunction()

edgewise_provide_highway()

function(edgewise_use_highway target)
  target_include_directories(${target} SYSTEM PRIVATE "${EDGEWISE_HIGHWAY_HEADERS}")
endfunction()

# The same, and compiles what chooses the instructions into `target`, or links the system's library.
function(edgewise_add_highway target)
  edgewise_use_highway(${target})
  if(EDGEWISE_HIGHWAY_FROM_SYSTEM)
    target_link_libraries(${target} PUBLIC "${EDGEWISE_HIGHWAY_LIBRARY}")
    return()
  endif()
  foreach(name targets abort per_target)
    target_sources(${target} PRIVATE "${EDGEWISE_HIGHWAY_HEADERS}/hwy/${name}.cc")
    set_source_files_properties("${EDGEWISE_HIGHWAY_HEADERS}/hwy/${name}.cc"
      PROPERTIES COMPILE_OPTIONS "-w")
  endforeach()
endfunction()
