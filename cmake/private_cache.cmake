# What a build takes from a cache is linked into it: caches are this user's alone.
include_guard(GLOBAL)

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
