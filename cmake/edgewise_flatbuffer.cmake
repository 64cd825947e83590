# edgewise_flatbuffer(<target> <schema.fbs>): generates <schema>_generated.h and puts its
# folder on the target's include path. Relative schema paths start at the current folder.
include_guard(GLOBAL)

include(edgewise_header_version)

# Headers only: this machine's serve every target.
find_path(EDGEWISE_FLATBUFFERS_INCLUDE_DIR flatbuffers/flatbuffers.h NO_CMAKE_FIND_ROOT_PATH
          PATHS /usr/local/include /usr/include  # where a bare machine has no folders
          DOC "Folder that holds flatbuffers/flatbuffers.h")
set(edgewise_flatbuffers_version "")
if(EDGEWISE_FLATBUFFERS_INCLUDE_DIR)
  edgewise_header_version(edgewise_flatbuffers_version
    "${EDGEWISE_FLATBUFFERS_INCLUDE_DIR}/flatbuffers/base.h" FLATBUFFERS_VERSION)
endif()

# What a compiler writes needs headers of its own version, and there may be several compilers:
# ExecuTorch's Python package puts one into the environment.
function(edgewise_flatc_fits result candidate)
  execute_process(COMMAND "${candidate}" --version OUTPUT_VARIABLE told ERROR_QUIET)
  string(REGEX MATCH "[0-9.]+" version "${told}")
  if(NOT "${version}" STREQUAL "${edgewise_flatbuffers_version}")
    set(${result} FALSE PARENT_SCOPE)
  endif()
endfunction()

find_program(EDGEWISE_FLATC flatc DOC "The flatbuffers compiler" VALIDATOR edgewise_flatc_fits)
set(edgewise_flatc_is_usable TRUE)
if(EDGEWISE_FLATC)
  edgewise_flatc_fits(edgewise_flatc_is_usable "${EDGEWISE_FLATC}")
endif()
if(NOT EDGEWISE_FLATC OR NOT EDGEWISE_FLATBUFFERS_INCLUDE_DIR OR NOT edgewise_flatc_is_usable)
  message(FATAL_ERROR
    " [edgewise] the flatbuffers compiler and headers of one version are needed; got flatc: "
    "${EDGEWISE_FLATC}, headers: ${EDGEWISE_FLATBUFFERS_INCLUDE_DIR} "
    "(${edgewise_flatbuffers_version})\n"
    " try `apt-get install flatbuffers-compiler libflatbuffers-dev`, or -DEDGEWISE_FLATC=... and "
    "-DEDGEWISE_FLATBUFFERS_INCLUDE_DIR=...\n")
endif()

# Beside them may lie headers that are this machine's alone, so another target gets a folder with
# nothing else in it.
if(CMAKE_CROSSCOMPILING)
  set(edgewise_flatbuffers_include "${PROJECT_BINARY_DIR}/generated/include")
  file(COPY "${EDGEWISE_FLATBUFFERS_INCLUDE_DIR}/flatbuffers"
       DESTINATION "${edgewise_flatbuffers_include}")
else()
  set(edgewise_flatbuffers_include "${EDGEWISE_FLATBUFFERS_INCLUDE_DIR}")
endif()

function(edgewise_flatbuffer target schema)
  cmake_path(ABSOLUTE_PATH schema NORMALIZE)
  cmake_path(GET schema STEM name)
  set(folder "${PROJECT_BINARY_DIR}/generated/${target}")
  set(header "${folder}/${name}_generated.h")
  get_filename_component(schema_folder "${schema}" DIRECTORY)
  file(MAKE_DIRECTORY "${folder}")
  # A schema may include its neighbours.
  file(GLOB neighbours CONFIGURE_DEPENDS "${schema_folder}/*.fbs")
  add_custom_command(
    OUTPUT "${header}"
    COMMAND "${EDGEWISE_FLATC}" --cpp --scoped-enums -I "${schema_folder}" -o "${folder}"
            "${schema}"
    DEPENDS ${neighbours}
    COMMENT "Generating ${name}_generated.h"
    VERBATIM)
  target_sources(${target} PRIVATE "${header}")
  # SYSTEM: warnings in generated code are not ours.
  target_include_directories(${target} SYSTEM PRIVATE
    "${folder}" "${edgewise_flatbuffers_include}")
endfunction()
