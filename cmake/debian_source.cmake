# Source packages of the Debian mirror that this machine's own apt configuration names, fetched
# through a private apt directory: nothing of the machine's apt state is touched, and no root is
# needed. What may be fetched is pinned: edgewise_debian_PACKAGE_sha256 lists the SHA-256 of upstream
# archives, in the order of preference. An archive of another hash is not unpacked.
include_guard(GLOBAL)

set(edgewise_debian_suites trixie forky sid)
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

# Reads the index of `suite` on `mirror` into `folder`: of sources, or with two more arguments, `deb`
# and an architecture, of that one's packages.
function(edgewise_debian_open out_result folder mirror suite)
  set(kind deb-src)
  set(options "")
  set(architecture "")
  if(ARGC GREATER 4)
    set(kind "${ARGV4}")
    set(options "arch=${ARGV5}")
    set(architecture -o "APT::Architectures::=${ARGV5}")
  endif()
  file(MAKE_DIRECTORY "${folder}/lists/partial" "${folder}/cache/archives/partial")
  if(EXISTS "${edgewise_debian_keyring}")
    string(APPEND options " signed-by=${edgewise_debian_keyring}")
  endif()
  if(options)
    set(options "[${options}] ")
  endif()
  file(WRITE "${folder}/sources.list" "${kind} ${options}${mirror} ${suite} main\n")
  edgewise_debian_apt(result "${folder}" update --error-on=any ${architecture})
  set(${out_result} "${result}" PARENT_SCOPE)
endfunction()

# Fetches the upstream archive of `package` from the suite of `folder` and unpacks it to
# `destination` if its hash is `pin`; else sets `out_reason` to what came.
function(edgewise_debian_source out_reason folder package pin destination)
  edgewise_debian_apt(result "${folder}" source --tar-only --download-only "${package}")
  file(GLOB archive "${folder}/${package}_*.orig.tar.*")
  if(NOT result EQUAL 0 OR NOT archive)
    set(${out_reason} "no source" PARENT_SCOPE)
    return()
  endif()
  file(SHA256 "${archive}" hash)
  if(NOT hash STREQUAL pin)
    cmake_path(GET archive FILENAME name)
    set(${out_reason} "${name} of SHA-256 ${hash}" PARENT_SCOPE)
    return()
  endif()
  set(unpacked "${folder}/unpacked-${package}")
  file(ARCHIVE_EXTRACT INPUT "${archive}" DESTINATION "${unpacked}")
  # Archives hold the files themselves or one folder with them.
  if(NOT EXISTS "${unpacked}/CMakeLists.txt")
    file(GLOB unpacked "${unpacked}/*")
  endif()
  file(RENAME "${unpacked}" "${destination}")
  # What it was, beside it: NAME=VERSION=SHA256.
  cmake_path(GET archive FILENAME name)
  string(REGEX REPLACE "^[^_]+_(.*)\\.orig\\..*$" "\\1" version "${name}")
  file(WRITE "${destination}.part" "${package}=${version}=${hash}\n")
  set(${out_reason} "" PARENT_SCOPE)
endfunction()

# Fetches the archive of `package` that is liked best of those pinned, or sets `out_reason`.
function(edgewise_debian_first out_reason apt mirror package destination)
  foreach(pin IN LISTS edgewise_debian_${package}_sha256)
    set(found "")
    foreach(suite IN LISTS edgewise_debian_suites)
      set(folder "${apt}/${suite}")
      if(NOT EXISTS "${folder}/sources.list")
        edgewise_debian_open(result "${folder}" "${mirror}" ${suite})
        if(NOT result EQUAL 0)
          list(APPEND found "${suite}: not served")
          continue()
        endif()
      endif()
      edgewise_debian_source(reason "${folder}" ${package} ${pin} "${destination}/${package}")
      if(NOT reason)
        set(${out_reason} "" PARENT_SCOPE)
        return()
      endif()
      list(APPEND found "${suite}: ${reason}")
    endforeach()
  endforeach()
  list(JOIN found ", " found)
  set(${out_reason} "the mirror has not the pinned version of ${package} (${found})" PARENT_SCOPE)
endfunction()

# Sets `out` to the mirrors of this machine's apt, or `out_reason` if it has none. `folder` is a
# folder to work in.
function(edgewise_debian_begin out out_reason folder)
  set(${out_reason} "" PARENT_SCOPE)
  find_program(EDGEWISE_APT_GET apt-get)
  mark_as_advanced(EDGEWISE_APT_GET)
  if(NOT EDGEWISE_APT_GET)
    set(${out_reason} "this machine has no apt-get" PARENT_SCOPE)
    return()
  endif()
  edgewise_debian_mirrors(mirrors "${folder}")
  if(NOT mirrors)
    set(${out_reason} "apt has no repository configured" PARENT_SCOPE)
  endif()
  set(${out} "${mirrors}" PARENT_SCOPE)
endfunction()

# Puts the `packages` into folders of `destination`, or sets `out_reason` to why they are not had.
function(edgewise_debian_sources destination out_reason packages)
  edgewise_debian_begin(mirrors reason "${destination}/apt/machine")
  set(${out_reason} "${reason}" PARENT_SCOPE)
  if(reason)
    return()
  endif()
  set(number 0)
  foreach(mirror IN LISTS mirrors)
    math(EXPR number "${number} + 1")
    set(missing "")
    foreach(package IN LISTS packages)
      if(NOT missing AND NOT IS_DIRECTORY "${destination}/${package}")
        edgewise_debian_first(missing "${destination}/apt/${number}" "${mirror}" ${package}
                              "${destination}")
      endif()
    endforeach()
    if(NOT missing)
      return()
    endif()
  endforeach()
  set(${out_reason} "${missing}" PARENT_SCOPE)
endfunction()
