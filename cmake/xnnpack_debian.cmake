# Fetches the source packages of XNNPACK and what it depends on from the Debian mirror that
# this machine's own apt configuration names, through a private apt directory: nothing of the
# machine's apt state is touched, and no root is needed.
include_guard(GLOBAL)

set(edgewise_debian_xnnpack_version "20241108.4ea82e5")
set(edgewise_debian_xnnpack_sha256
    "90bde2caef0f880f627bab0dc805a86c4b8070cd98e3243db3046ab3f3be1a99")
set(edgewise_debian_keyring "/usr/share/keyrings/debian-archive-keyring.gpg")

# The base URIs of the repositories in the machine's apt configuration, read by apt itself
# (so deb822 and one-line files both count), without those of security updates.
function(edgewise_debian_mirrors out folder)
  file(MAKE_DIRECTORY "${folder}/lists/partial")
  execute_process(
    COMMAND "${EDGEWISE_APT_GET}" -o "Dir::State::lists=${folder}/lists" update --print-uris
    OUTPUT_VARIABLE text ERROR_QUIET)
  set(mirrors "")
  string(REGEX MATCHALL "'[^'\n]+/dists/[^'\n]*InRelease'" lines "${text}")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^'(.+)/dists/.*$" "\\1" uri "${line}")
    if(NOT uri MATCHES "security/?$")
      list(APPEND mirrors "${uri}")
    endif()
  endforeach()
  list(REMOVE_DUPLICATES mirrors)
  set(${out} "${mirrors}" PARENT_SCOPE)
endfunction()

# Runs apt-get on the one suite of the private folder.
function(edgewise_debian_apt out_result folder)
  execute_process(
    COMMAND "${EDGEWISE_APT_GET}" -q -o "Dir::Etc::sourcelist=${folder}/sources.list"
            -o "Dir::Etc::sourceparts=-" -o "Dir::State::lists=${folder}/lists"
            -o "Dir::Cache=${folder}/cache" -o Acquire::Retries=3 ${ARGN}
    WORKING_DIRECTORY "${folder}" RESULT_VARIABLE result
    OUTPUT_FILE "${folder}/apt.log" ERROR_FILE "${folder}/apt.log")
  set(${out_result} "${result}" PARENT_SCOPE)
endfunction()

# Reads the index of `suite` on `mirror` into `folder`.
function(edgewise_debian_open out_result folder mirror suite)
  file(MAKE_DIRECTORY "${folder}/lists/partial" "${folder}/cache/archives/partial")
  set(signed "")
  if(EXISTS "${edgewise_debian_keyring}")
    set(signed "[signed-by=${edgewise_debian_keyring}] ")
  endif()
  file(WRITE "${folder}/sources.list" "deb-src ${signed}${mirror} ${suite} main\n")
  edgewise_debian_apt(result "${folder}" update --error-on=any)
  set(${out_result} "${result}" PARENT_SCOPE)
endfunction()

# Fetches the upstream archive of `package` and unpacks it to `destination`.
function(edgewise_debian_source out_result folder package destination)
  edgewise_debian_apt(result "${folder}" source --tar-only --download-only "${package}")
  file(GLOB archive "${folder}/${package}_*.orig.tar.*")
  if(result EQUAL 0 AND archive)
    set(unpacked "${folder}/unpacked-${package}")
    file(ARCHIVE_EXTRACT INPUT "${archive}" DESTINATION "${unpacked}")
    # Archives hold the files themselves or one folder with them.
    if(NOT EXISTS "${unpacked}/CMakeLists.txt")
      file(GLOB unpacked "${unpacked}/*")
    endif()
    file(RENAME "${unpacked}" "${destination}")
    set(result 0)
  else()
    set(result 1)
  endif()
  set(${out_result} "${result}" PARENT_SCOPE)
endfunction()

# Puts xnnpack/, pthreadpool/, fxdiv/ and cpuinfo/ into `destination`, or sets `out_reason`.
function(edgewise_debian_sources destination out_reason)
  set(${out_reason} "" PARENT_SCOPE)
  set(apt "${destination}/apt")
  edgewise_debian_mirrors(mirrors "${apt}/machine")
  if(NOT mirrors)
    set(${out_reason} "apt has no repository configured" PARENT_SCOPE)
    return()
  endif()
  set(missing "no configured mirror serves the suite trixie")
  foreach(mirror IN LISTS mirrors)
    edgewise_debian_open(result "${apt}/trixie" "${mirror}" trixie)
    if(NOT result EQUAL 0)
      continue()
    endif()
    set(missing "")
    foreach(package xnnpack fxdiv)
      edgewise_debian_source(result "${apt}/trixie" ${package} "${destination}/${package}")
      if(NOT result EQUAL 0)
        set(missing "the mirror's suite trixie has no source of ${package}")
      endif()
    endforeach()
    if(NOT missing)
      file(GLOB archive "${apt}/trixie/xnnpack_*.orig.tar.*")
      file(SHA256 "${archive}" hash)
      if(NOT hash STREQUAL edgewise_debian_xnnpack_sha256)
        set(missing "${archive} is not the expected version (its SHA-256 is ${hash})")
      endif()
    endif()
    if(missing)
      continue()
    endif()
    # Mirrors have been seen without the archive of trixie's cpuinfo: later suites do as well.
    # pthreadpool of 2025 lets the calling thread go on without workers that sleep.
    edgewise_debian_first(cpuinfo_reason "${apt}" "${mirror}" cpuinfo "${destination}"
                          trixie forky sid)
    edgewise_debian_first(pthreadpool_reason "${apt}" "${mirror}" pthreadpool "${destination}"
                          forky sid trixie)
    set(missing "${cpuinfo_reason}${pthreadpool_reason}")
    if(NOT missing)
      return()
    endif()
  endforeach()
  set(${out_reason} "${missing}" PARENT_SCOPE)
endfunction()

# Fetches `package` from the first of the suites ARGN that has it, or sets `out_reason`.
function(edgewise_debian_first out_reason apt mirror package destination)
  foreach(suite IN LISTS ARGN)
    if(NOT EXISTS "${apt}/${suite}/sources.list")
      edgewise_debian_open(result "${apt}/${suite}" "${mirror}" ${suite})
    endif()
    edgewise_debian_source(result "${apt}/${suite}" ${package} "${destination}/${package}")
    if(result EQUAL 0)
      set(${out_reason} "" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  string(REPLACE ";" ", " suites "${ARGN}")
  set(${out_reason} "the mirror has no source of ${package} in ${suites}" PARENT_SCOPE)
endfunction()
