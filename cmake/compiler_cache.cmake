# Objects that were compiled before, in this build or for another clone, come from ccache if that is
# installed. -DEDGEWISE_CCACHE=OFF compiles all of them; a launcher that is given is kept.
include_guard(GLOBAL)

find_program(EDGEWISE_CCACHE ccache DOC "ccache, or OFF")
mark_as_advanced(EDGEWISE_CCACHE)
if(EDGEWISE_CCACHE AND PROJECT_IS_TOP_LEVEL AND NOT EDGEWISE_WASM)
  # Paths in the project are compared as relative ones, and the folder of the build does not count.
  set(edgewise_ccache "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}"
      CCACHE_NOHASHDIR=true "${EDGEWISE_CCACHE}")
  foreach(language C CXX)
    if(NOT DEFINED CMAKE_${language}_COMPILER_LAUNCHER)
      set(CMAKE_${language}_COMPILER_LAUNCHER "${edgewise_ccache}")
    endif()
  endforeach()
endif()
