# What a build takes from a cache is linked into it: caches are this user's alone.
include_guard(GLOBAL)

# Makes `folder` if it is not there, for this user alone. Stops if others may have put something into
# it: it is another user's, no folder, or others may write to it, or something in it is another user's.
function(edgewise_private_cache folder)
  if(NOT EXISTS "${folder}" AND NOT IS_SYMLINK "${folder}")
    file(MAKE_DIRECTORY "${folder}")
    file(CHMOD "${folder}" DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
  endif()
  # -H: a cache on another disk may be reached through a link.
  execute_process(COMMAND id -u OUTPUT_VARIABLE user OUTPUT_STRIP_TRAILING_WHITESPACE)
  execute_process(
    COMMAND find -H "${folder}" "(" ! -user "${user}" -o -path "${folder}" "(" ! -type d -o -perm -020
            -o -perm -002 ")" ")" -print
    OUTPUT_VARIABLE others ERROR_VARIABLE failure RESULT_VARIABLE result)
  if(others OR NOT result EQUAL 0)
    string(REGEX REPLACE "\n.*" "" first "${others}${failure}")
    message(FATAL_ERROR "[edgewise] the cache '${folder}' must be this user's own, and writable by no "
      "one else; got '${first}'; try removing it, chmod go-w, or "
      "-DEDGEWISE_CACHE_DIR=/a/folder/of/your/own")
  endif()
  file(CHMOD "${folder}" DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
endfunction()
