# What a build takes from a cache is linked into it: caches are this user's alone.
include_guard(GLOBAL)

if(DEFINED ENV{XDG_CACHE_HOME} AND NOT "$ENV{XDG_CACHE_HOME}" STREQUAL "")
  set(edgewise_cache_default "$ENV{XDG_CACHE_HOME}/edgewise")
elseif(DEFINED ENV{HOME} AND NOT "$ENV{HOME}" STREQUAL "")
  set(edgewise_cache_default "$ENV{HOME}/.cache/edgewise")
else()
  set(edgewise_cache_default "${CMAKE_BINARY_DIR}/cache")
endif()
set(EDGEWISE_CACHE_DIR "${edgewise_cache_default}" CACHE PATH "Where built dependencies are kept")
if(NOT IS_ABSOLUTE "${EDGEWISE_CACHE_DIR}")
  message(FATAL_ERROR "[edgewise] EDGEWISE_CACHE_DIR must be an absolute path; "
    "got '${EDGEWISE_CACHE_DIR}'")
endif()

# Stops if something in `folder` is another user's, or ARGN, further conditions of find, finds some.
function(edgewise_require_own folder)
  execute_process(COMMAND id -u OUTPUT_VARIABLE user OUTPUT_STRIP_TRAILING_WHITESPACE)
  # -H: a cache on another disk may be reached through a link.
  execute_process(
    COMMAND find -H "${folder}" ${ARGN} ! -user "${user}" -print
    OUTPUT_VARIABLE others ERROR_VARIABLE failure RESULT_VARIABLE result)
  if(others OR NOT result EQUAL 0)
    string(REGEX REPLACE "\n.*" "" first "${others}${failure}")
    message(FATAL_ERROR "[edgewise] the cache '${folder}' must be this user's own, and writable by no "
      "one else; got '${first}'; try removing it, chmod go-w, or "
      "-DEDGEWISE_CACHE_DIR=/a/folder/of/your/own")
  endif()
endfunction()

# Makes the cache if it is not there, and has it for this user alone. Stops if others may have put
# something into it. Deeper than its first level is looked where something is taken from.
function(edgewise_private_cache folder)
  if(NOT EXISTS "${folder}" AND NOT IS_SYMLINK "${folder}")
    file(MAKE_DIRECTORY "${folder}")
    file(CHMOD "${folder}" DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
  endif()
  edgewise_require_own("${folder}" -maxdepth 1 -path "${folder}"
    "(" ! -type d -o -perm -020 -o -perm -002 ")" -print -o)
  file(CHMOD "${folder}" DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
endfunction()

# Takes the cache's lock for the rest of the calling function and sets `work` there to a new
# folder of the cache.
macro(edgewise_cache_begin)
  file(LOCK "${EDGEWISE_CACHE_DIR}/lock" GUARD FUNCTION TIMEOUT 0 RESULT_VARIABLE edgewise_locked)
  if(NOT edgewise_locked EQUAL 0)
    message(STATUS "waiting for another build that holds ${EDGEWISE_CACHE_DIR}/lock")
    file(LOCK "${EDGEWISE_CACHE_DIR}/lock" GUARD FUNCTION TIMEOUT 3600)
  endif()
  # We hold the lock: what is left of others was left by builds that failed.
  file(GLOB edgewise_old "${EDGEWISE_CACHE_DIR}/work-*")
  foreach(edgewise_folder IN LISTS edgewise_old)
    file(REMOVE_RECURSE "${edgewise_folder}")
  endforeach()
  string(RANDOM LENGTH 8 edgewise_random)
  set(work "${EDGEWISE_CACHE_DIR}/work-${edgewise_random}")
  file(MAKE_DIRECTORY "${work}")
endmacro()

# Sets `out` to the cache's folder of what `hashes` pin, or `out_reason` to why it cannot be had. The
# first build has it filled by the function `fetch`(out_reason work destination): `work` is a folder
# to work in, `destination` is to be made.
function(edgewise_cached_fetch out out_reason name hashes fetch)
  edgewise_private_cache("${EDGEWISE_CACHE_DIR}")
  string(SHA256 key "${hashes}")
  string(SUBSTRING "${key}" 0 12 key)
  set(folder "${EDGEWISE_CACHE_DIR}/${name}-${key}")
  if(NOT IS_DIRECTORY "${folder}")
    edgewise_cache_begin()
    if(NOT IS_DIRECTORY "${folder}")
      cmake_language(CALL ${fetch} reason "${work}" "${work}/fetched")
      if(reason)
        file(REMOVE_RECURSE "${work}")
        set(${out_reason} "${reason}" PARENT_SCOPE)
        return()
      endif()
      file(RENAME "${work}/fetched" "${folder}")
    endif()
    file(REMOVE_RECURSE "${work}")
  endif()
  edgewise_require_own("${folder}")
  set(${out} "${folder}" PARENT_SCOPE)
endfunction()
