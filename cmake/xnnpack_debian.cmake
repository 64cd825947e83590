# Fetches the source packages of XNNPACK and what it depends on from the Debian mirror that
# this machine's own apt configuration names, through a private apt directory: nothing of the
# machine's apt state is touched, and no root is needed.
include_guard(GLOBAL)

# What is built: the SHA-256 of each package's upstream archive, in the order of preference, and
# the suites in which it is looked for. An archive of another hash is not unpacked.
set(edgewise_debian_xnnpack_version "20241108.4ea82e5")
set(edgewise_debian_xnnpack_sha256
    "90bde2caef0f880f627bab0dc805a86c4b8070cd98e3243db3046ab3f3be1a99")
set(edgewise_debian_fxdiv_sha256  # 20200417.b408327
    "7953482badaf4cb34026c3487c257b8e4ab2df061c019bd6fabbbc12ad52c44b")
set(edgewise_debian_cpuinfo_sha256  # 20250905.877328f
    "557ca404a3836b9f335a3a06b65ff9fe9dbaaefab7fb5c0185f53d9f33615a10")
# 20251020.0e6ca13, which lets the calling thread go on without workers that sleep; else
# 20240616.560c60d, which a stable suite keeps.
set(edgewise_debian_pthreadpool_sha256
    "7a385b6585abe8f8658952c50b44a1dabe200de2c88eabe65d15168b8a82295c"
    "4cc3cbd933b28131d2a34edc54f76af9fb41bc490af5eae1a5bd3cd07ea90708")
set(edgewise_debian_packages xnnpack fxdiv cpuinfo pthreadpool)
set(edgewise_debian_suites trixie forky sid)
set(edgewise_debian_pins "")
foreach(package IN LISTS edgewise_debian_packages)
  list(APPEND edgewise_debian_pins "${edgewise_debian_${package}_sha256}")
endforeach()
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

# Puts xnnpack/, pthreadpool/, fxdiv/ and cpuinfo/ into `destination`, or sets `out_reason`.
function(edgewise_debian_sources destination out_reason)
  set(${out_reason} "" PARENT_SCOPE)
  edgewise_debian_mirrors(mirrors "${destination}/apt/machine")
  if(NOT mirrors)
    set(${out_reason} "apt has no repository configured" PARENT_SCOPE)
    return()
  endif()
  set(number 0)
  foreach(mirror IN LISTS mirrors)
    math(EXPR number "${number} + 1")
    set(missing "")
    foreach(package IN LISTS edgewise_debian_packages)
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
