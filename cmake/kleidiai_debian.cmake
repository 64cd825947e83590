# Which of Debian's packages of KleidiAI are taken: libkleidiai-dev for arm64, whose archive has each
# micro-kernel as an object of its own. Not the source package: mirrors were met that list it and do
# not have the file.
include_guard(GLOBAL)
include("${CMAKE_CURRENT_LIST_DIR}/debian_source.cmake")

set(edgewise_debian_kleidiai_sha256
    "e1a2dcc8cf08fa3fbf6b0a6886d4f667fac740fe59a2ef601b72c2de879d68bc"   # 1.8.0, of a stable suite
    "7b25771061d70a114750c61b2ff98be1270c7a104aabde130e0de221b22f4d1e")  # 1.19.0

# Fetches and unpacks the package of `suite` on `mirror` to `destination` if its hash is pinned, with
# its NAME=VERSION=SHA256 in `part`; else sets `out_reason`.
function(edgewise_kleidiai_of_suite out_reason apt mirror suite destination)
  edgewise_debian_open(result "${apt}" "${mirror}" ${suite} deb arm64)
  if(NOT result EQUAL 0)
    set(${out_reason} "not served" PARENT_SCOPE)
    return()
  endif()
  edgewise_debian_apt(result "${apt}" -o APT::Architectures::=arm64 download libkleidiai-dev:arm64)
  file(GLOB archive "${apt}/libkleidiai-dev_*.deb")
  if(NOT result EQUAL 0 OR NOT archive)
    set(${out_reason} "no package" PARENT_SCOPE)
    return()
  endif()
  cmake_path(GET archive FILENAME name)
  file(SHA256 "${archive}" hash)
  if(NOT hash IN_LIST edgewise_debian_kleidiai_sha256)
    set(${out_reason} "${name} of SHA-256 ${hash}" PARENT_SCOPE)
    return()
  endif()
  file(ARCHIVE_EXTRACT INPUT "${archive}" DESTINATION "${apt}/package")
  file(GLOB data "${apt}/package/data.tar.*")
  file(ARCHIVE_EXTRACT INPUT "${data}" DESTINATION "${destination}")
  string(REGEX REPLACE "^[^_]+_([^_]+)_.*$" "\\1" version "${name}")
  file(WRITE "${destination}/part" "KleidiAI=${version}=${hash}\n")
  set(${out_reason} "" PARENT_SCOPE)
endfunction()

# The same, of the first suite that has a pinned package. `work` is a folder to work in.
function(edgewise_kleidiai_fetch out_reason work destination)
  message(STATUS "KleidiAI: fetching Debian's package")
  edgewise_debian_begin(mirrors reason "${work}/machine")
  if(reason)
    set(${out_reason} "${reason}" PARENT_SCOPE)
    return()
  endif()
  set(number 0)
  set(found "")
  foreach(mirror IN LISTS mirrors)
    math(EXPR number "${number} + 1")
    foreach(suite IN LISTS edgewise_debian_suites)
      edgewise_kleidiai_of_suite(reason "${work}/${number}-${suite}" "${mirror}" ${suite}
                                 "${destination}")
      if(NOT reason)
        set(${out_reason} "" PARENT_SCOPE)
        return()
      endif()
      list(APPEND found "${suite}: ${reason}")
    endforeach()
  endforeach()
  list(JOIN found ", " found)
  set(${out_reason} "the mirror has not the pinned package (${found})" PARENT_SCOPE)
endfunction()
