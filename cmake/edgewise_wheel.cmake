# What a wheel says of itself: which commit and which XNNPACK it was made of (edgewise --version),
# and the parts that are linked in, as an SBOM in the place that PEP 770 gives it.
include_guard(GLOBAL)
include(edgewise_header_version)

find_package(Git QUIET)
set(edgewise_commit "$ENV{EDGEWISE_COMMIT}")
if(NOT edgewise_commit AND GIT_FOUND AND EXISTS "${PROJECT_SOURCE_DIR}/.git")
  execute_process(
    COMMAND "${GIT_EXECUTABLE}" -C "${PROJECT_SOURCE_DIR}" rev-parse --short=12 HEAD
    OUTPUT_VARIABLE edgewise_commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  execute_process(
    COMMAND "${GIT_EXECUTABLE}" -C "${PROJECT_SOURCE_DIR}" status --porcelain --untracked-files=no
    OUTPUT_VARIABLE edgewise_changed ERROR_QUIET)
  if(edgewise_changed)
    string(APPEND edgewise_commit "+changes")
  endif()
endif()
string(REGEX MATCH "XNNPACK=([^=;]+)" edgewise_xnnpack "${EDGEWISE_XNNPACK_PARTS}")
set(edgewise_xnnpack "${CMAKE_MATCH_1}")
string(JSON edgewise_build SET "{}" commit "\"${edgewise_commit}\"")
string(JSON edgewise_build SET "${edgewise_build}" xnnpack "\"${edgewise_xnnpack}\"")
string(JSON edgewise_build SET "${edgewise_build}" glibc "\"${EDGEWISE_GLIBC}\"")
file(WRITE "${PROJECT_BINARY_DIR}/_build.json" "${edgewise_build}\n")
install(FILES "${PROJECT_BINARY_DIR}/_build.json" DESTINATION edgewise/runtime COMPONENT python)

edgewise_header_version(edgewise_robin_map_version
  "${NB_DIR}/ext/robin_map/include/tsl/robin_growth_policy.h" TSL_RH_VERSION)
set(edgewise_parts
  --part "flatbuffers=${edgewise_flatbuffers_version}" --part "nanobind=${nanobind_VERSION}"
  --part "robin-map=${edgewise_robin_map_version}")
foreach(part IN LISTS EDGEWISE_XNNPACK_PARTS)
  list(APPEND edgewise_parts --part "${part}")
endforeach()
if(EDGEWISE_HIGHWAY_PART AND NOT EDGEWISE_HIGHWAY_FROM_SYSTEM)
  list(APPEND edgewise_parts --part "${EDGEWISE_HIGHWAY_PART}")
endif()
if(EDGEWISE_KLEIDIAI_PART)
  list(APPEND edgewise_parts --part "${EDGEWISE_KLEIDIAI_PART}")
endif()
if(EDGEWISE_GLIBC)
  list(APPEND edgewise_parts --part "libstdc++=${CMAKE_CXX_COMPILER_VERSION}")
endif()
# For `edgewise report --live`.
set(EDGEWISE_WEB_RUNTIME "" CACHE PATH "The runtime for browsers that the wheel carries: build/web/native/web")
if(EDGEWISE_WEB_RUNTIME)
  set(web "${EDGEWISE_WEB_RUNTIME}")
  set(edgewise_web_files edgewise.mjs edgewise-worker.js edgewise-module.js
      edgewise-module.worker.js edgewise-module.wasm emscripten-copyright.txt)
  foreach(file IN LISTS edgewise_web_files)
    if(NOT EXISTS "${web}/${file}")
      message(FATAL_ERROR "[edgewise] EDGEWISE_WEB_RUNTIME must hold ${file}; "
                          "${web} does not; try `make web`")
    endif()
  endforeach()
  file(STRINGS "${web}/emscripten-version.txt" edgewise_emscripten)
  list(APPEND edgewise_parts --part "Emscripten=${edgewise_emscripten}")
  list(TRANSFORM edgewise_web_files PREPEND "${web}/")
  install(FILES ${edgewise_web_files} DESTINATION edgewise/runtime/web COMPONENT python)
endif()
set(edgewise_sbom "${PROJECT_BINARY_DIR}/edgewise.cdx.json")
execute_process(
  COMMAND "${Python_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/tools/make_sbom.py" --out "${edgewise_sbom}"
          ${edgewise_parts}
  RESULT_VARIABLE edgewise_sbom_result ERROR_VARIABLE edgewise_sbom_error)
if(NOT edgewise_sbom_result EQUAL 0)
  message(FATAL_ERROR "[edgewise] the list of parts could not be made:\n${edgewise_sbom_error}")
endif()
install(FILES "${edgewise_sbom}" DESTINATION "${SKBUILD_METADATA_DIR}/sboms" COMPONENT python)
