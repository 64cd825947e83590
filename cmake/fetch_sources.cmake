# Debian's source packages of what is linked in, for machines without apt:
#   cmake -D OUT=sources -P cmake/fetch_sources.cmake
# leaves XNNPACK, cpuinfo, pthreadpool, fxdiv and highway in folders of OUT, for
# EDGEWISE_XNNPACK_SOURCE_DIR and the like (docs/packaging.md).
cmake_minimum_required(VERSION 3.25)
include("${CMAKE_CURRENT_LIST_DIR}/xnnpack_build.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/highway_debian.cmake")

if(NOT OUT)
  message(FATAL_ERROR "[fetch_sources] OUT must be a folder to make; got none; try cmake -D OUT=sources "
    "-P cmake/fetch_sources.cmake")
endif()
cmake_path(ABSOLUTE_PATH OUT NORMALIZE)
if(EXISTS "${OUT}")
  message(FATAL_ERROR "[fetch_sources] OUT must not exist; got '${OUT}'; try another folder")
endif()
edgewise_debian_sources("${OUT}" reason "${edgewise_debian_packages};highway")
file(REMOVE_RECURSE "${OUT}/apt")
if(reason)
  message(FATAL_ERROR "[fetch_sources] Debian's source packages cannot be had: ${reason}")
endif()
edgewise_xnnpack_patch_debian("${OUT}")
