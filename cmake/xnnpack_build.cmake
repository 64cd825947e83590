# Builds XNNPACK with pthreadpool and cpuinfo as static libraries into a folder of
# EDGEWISE_CACHE_DIR: include/, lib/, licenses/ and parts/. A folder that exists is complete: it is
# built under another name and renamed at the end, under a lock.
include_guard(GLOBAL)
include("${CMAKE_CURRENT_LIST_DIR}/private_cache.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/xnnpack_debian.cmake")

# Raise it when what is built changes.
set(edgewise_xnnpack_recipe 11)
set(edgewise_xnnpack_c_flags "-fPIC -fvisibility=hidden -ffunction-sections -fdata-sections")

# What the NDK's toolchain file is told, and its compilers compile for.
set(edgewise_android_variables ANDROID_ABI ANDROID_PLATFORM ANDROID_STL)

# The folder for a version of the sources and the compiler in use.
function(edgewise_xnnpack_prefix out version)
  set(key "${edgewise_xnnpack_recipe};${CMAKE_SYSTEM_NAME};${CMAKE_SYSTEM_PROCESSOR}")
  list(APPEND key "${CMAKE_C_COMPILER_ID};${CMAKE_C_COMPILER_VERSION};${CMAKE_C_FLAGS}"
       "${CMAKE_CXX_COMPILER_ID};${CMAKE_CXX_COMPILER_VERSION};${CMAKE_CXX_FLAGS}" ${ARGN})
  if(ANDROID)
    foreach(variable IN LISTS edgewise_android_variables)
      list(APPEND key "${${variable}}")
    endforeach()
  endif()
  if(APPLE)  # what CMake adds to the flags itself
    list(APPEND key "${CMAKE_OSX_ARCHITECTURES};${CMAKE_OSX_DEPLOYMENT_TARGET}")
  endif()
  edgewise_private_cache("${EDGEWISE_CACHE_DIR}")
  string(SHA256 key "${key}")
  string(SUBSTRING "${key}" 0 12 key)
  string(TOLOWER "${CMAKE_C_COMPILER_ID}${CMAKE_C_COMPILER_VERSION}" compiler)
  set(prefix
      "${EDGEWISE_CACHE_DIR}/xnnpack-${version}-${CMAKE_SYSTEM_PROCESSOR}-${compiler}-${key}")
  if(IS_DIRECTORY "${prefix}")
    edgewise_require_own("${prefix}")
  endif()
  set(${out} "${prefix}" PARENT_SCOPE)
endfunction()

# Runs a step of the build; on failure shows the end of its log and stops.
function(edgewise_xnnpack_step what log)
  execute_process(COMMAND ${ARGN} OUTPUT_FILE "${log}" ERROR_FILE "${log}" RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    edgewise_xnnpack_fail("${what}" "${log}")
  endif()
endfunction()

function(edgewise_xnnpack_fail what log)
  file(READ "${log}" text)
  string(LENGTH "${text}" length)
  if(length GREATER 4000)
    math(EXPR start "${length} - 4000")
    string(SUBSTRING "${text}" ${start} -1 text)
  endif()
  message(FATAL_ERROR "[edgewise] ${what} failed; the end of ${log}:\n${text}")
endfunction()

# Compiles the configured tree `work`/build, with a line of progress every tenth.
function(edgewise_xnnpack_compile work log)
  set(parallel "")
  if(NOT DEFINED ENV{CMAKE_BUILD_PARALLEL_LEVEL})
    cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
    set(parallel --parallel ${cores})
  endif()
  set(build "${CMAKE_COMMAND}" --build "${work}/build" ${parallel} --target XNNPACK)
  find_program(EDGEWISE_AWK awk)
  mark_as_advanced(EDGEWISE_AWK)
  if(NOT EDGEWISE_AWK)
    edgewise_xnnpack_step("building XNNPACK" "${log}" ${build})
    return()
  endif()
  # "[97/968] ..." of ninja, "[ 10%] ..." of make.
  file(WRITE "${work}/progress.awk" [[
    { print > log_file }
    match($0, /^\[ *[0-9]+\/[0-9]+\]/) {
      split(substr($0, 2, RLENGTH - 2), n, "/"); show(int(10 * n[1] / n[2]))
    }
    match($0, /^\[ *[0-9]+%\]/) { show(int(substr($0, 2) / 10)) }
    function show(tenth) {
      if (tenth > last) { last = tenth; printf "-- XNNPACK: %d%% built\n", 10 * tenth; fflush() }
    }
  ]])
  execute_process(COMMAND ${build}
                  COMMAND "${EDGEWISE_AWK}" -v "log_file=${log}" -f "${work}/progress.awk"
                  ERROR_FILE "${log}.stderr" RESULTS_VARIABLE results)
  list(GET results 0 result)
  if(NOT result EQUAL 0)
    edgewise_xnnpack_fail("building XNNPACK" "${log}")
  endif()
endfunction()

# Configures, compiles and gathers into `prefix`; ARGN are further cache definitions.
function(edgewise_xnnpack_build_into prefix work source)
  # An error above does not always end the configure step at once: never build elsewhere.
  if(NOT IS_DIRECTORY "${work}" OR NOT IS_DIRECTORY "${source}")
    message(FATAL_ERROR "[edgewise] building XNNPACK needs a work folder and sources; "
      "got '${work}' and '${source}'")
  endif()
  set(no_paths "-ffile-prefix-map=${work}=xnnpack")  # two builds give the same bytes
  set(launcher "")
  if(CMAKE_MAKE_PROGRAM)
    list(APPEND launcher "-DCMAKE_MAKE_PROGRAM=${CMAKE_MAKE_PROGRAM}")
  endif()
  if(CMAKE_TOOLCHAIN_FILE)
    list(APPEND launcher "-DCMAKE_TOOLCHAIN_FILE=${CMAKE_TOOLCHAIN_FILE}")
  endif()
  if(ANDROID)
    foreach(variable IN LISTS edgewise_android_variables)
      list(APPEND launcher "-D${variable}=${${variable}}")
    endforeach()
  endif()
  if(APPLE)
    list(APPEND launcher "-DCMAKE_OSX_ARCHITECTURES=${CMAKE_OSX_ARCHITECTURES}"
         "-DCMAKE_OSX_DEPLOYMENT_TARGET=${CMAKE_OSX_DEPLOYMENT_TARGET}")
  endif()
  if(EDGEWISE_WASM)
    list(APPEND launcher
         "-DCMAKE_PROJECT_XNNPACK_INCLUDE=${PROJECT_SOURCE_DIR}/cmake/xnnpack_wasm.cmake")
  endif()
  edgewise_xnnpack_step("configuring XNNPACK" "${work}/configure.log"
    "${CMAKE_COMMAND}" -S "${source}" -B "${work}/build" -G "${CMAKE_GENERATOR}" ${launcher}
    "-DCMAKE_C_COMPILER=${CMAKE_C_COMPILER}" "-DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER}"
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DBUILD_SHARED_LIBS=OFF
    -DXNNPACK_LIBRARY_TYPE=static -DCPUINFO_LIBRARY_TYPE=static -DPTHREADPOOL_LIBRARY_TYPE=static
    -DXNNPACK_BUILD_TESTS=OFF -DXNNPACK_BUILD_BENCHMARKS=OFF -DXNNPACK_BUILD_ALL_MICROKERNELS=OFF
    -DXNNPACK_USE_SYSTEM_LIBS=OFF
    "-DCMAKE_CXX_FLAGS=${CMAKE_CXX_FLAGS} ${edgewise_xnnpack_c_flags} ${no_paths}"
    "-DCMAKE_C_FLAGS=${CMAKE_C_FLAGS} ${edgewise_xnnpack_c_flags} ${no_paths}" ${ARGN})
  edgewise_xnnpack_compile("${work}" "${work}/build.log")

  set(staged "${work}/prefix")
  file(MAKE_DIRECTORY "${staged}/lib" "${staged}/include" "${staged}/licenses")
  file(GLOB_RECURSE libraries "${work}/build/*.a")
  file(COPY ${libraries} DESTINATION "${staged}/lib")
  # Where XNNPACK's own build found or put what it depends on, for headers and licences.
  load_cache("${work}/build" READ_WITH_PREFIX built_
             CPUINFO_SOURCE_DIR PTHREADPOOL_SOURCE_DIR FXDIV_SOURCE_DIR KLEIDIAI_SOURCE_DIR)
  file(COPY "${source}/include/" "${built_CPUINFO_SOURCE_DIR}/include/"
            "${built_PTHREADPOOL_SOURCE_DIR}/include/"
       DESTINATION "${staged}/include" FILES_MATCHING PATTERN "*.h")
  foreach(part XNNPACK CPUINFO PTHREADPOOL FXDIV KLEIDIAI)
    set(folder "${built_${part}_SOURCE_DIR}")
    if(part STREQUAL "XNNPACK")
      set(folder "${source}")
    endif()
    if(folder AND EXISTS "${folder}/LICENSE")
      string(TOLOWER "${part}" name)
      configure_file("${folder}/LICENSE" "${staged}/licenses/${name}.txt" COPYONLY)
    endif()
    string(TOLOWER "${part}" name)
    if(EXISTS "${folder}.part")
      configure_file("${folder}.part" "${staged}/parts/${name}.part" COPYONLY)
    endif()
  endforeach()
  file(RENAME "${staged}" "${prefix}")
endfunction()

# XNNPACK fetches what it depends on by itself unless CPUINFO_SOURCE_DIR,
# PTHREADPOOL_SOURCE_DIR, FXDIV_SOURCE_DIR (and KLEIDIAI_SOURCE_DIR on arm64, if it is not left out
# by -DXNNPACK_ENABLE_KLEIDIAI=OFF) are given.
function(edgewise_build_xnnpack_from_directory out source)
  cmake_path(ABSOLUTE_PATH source NORMALIZE)
  if(NOT EXISTS "${source}/include/xnnpack.h" OR NOT EXISTS "${source}/CMakeLists.txt")
    message(FATAL_ERROR "[edgewise] EDGEWISE_XNNPACK_SOURCE_DIR must hold XNNPACK's sources; "
      "${source} has no include/xnnpack.h or no CMakeLists.txt; try a clone of the project")
  endif()
  set(definitions "")
  foreach(part CPUINFO PTHREADPOOL FXDIV KLEIDIAI)
    if(DEFINED ${part}_SOURCE_DIR)
      list(APPEND definitions "-D${part}_SOURCE_DIR=${${part}_SOURCE_DIR}")
    endif()
  endforeach()
  if(DEFINED XNNPACK_ENABLE_KLEIDIAI)
    list(APPEND definitions "-DXNNPACK_ENABLE_KLEIDIAI=${XNNPACK_ENABLE_KLEIDIAI}")
  endif()
  # A change of the sources is noticed by their build files and public header.
  set(stamp "")
  foreach(name include/xnnpack.h CMakeLists.txt src/subgraph.c)
    if(EXISTS "${source}/${name}")
      file(SHA256 "${source}/${name}" hash)
      string(APPEND stamp "${hash}")
    endif()
  endforeach()
  edgewise_xnnpack_prefix(prefix "local" "${source}" "${stamp}" ${definitions})
  if(NOT IS_DIRECTORY "${prefix}")
    edgewise_cache_begin()
    if(NOT IS_DIRECTORY "${prefix}")
      message(STATUS "XNNPACK: building ${source} (once; some minutes; log in ${work})")
      edgewise_xnnpack_build_into("${prefix}" "${work}" "${source}" ${definitions})
    endif()
    file(REMOVE_RECURSE "${work}")
  endif()
  set(${out} "${prefix}" PARENT_SCOPE)
endfunction()

# Replaces a line of `file`, which must be there.
function(edgewise_xnnpack_patch file line replacement)
  file(READ "${file}" text)
  string(FIND "${text}" "${line}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "[edgewise] ${file} must contain '${line}'; it does not: "
      "look whether its patch in cmake/xnnpack_build.cmake is still needed")
  endif()
  string(REPLACE "${line}" "${replacement}" text "${text}")
  file(WRITE "${file}" "${text}")
endfunction()

function(edgewise_xnnpack_patch_debian sources)
  if(WIN32)  # a macro of Microsoft's headers that MinGW's leave out where NOMINMAX is defined
    edgewise_xnnpack_patch("${sources}/cpuinfo/src/x86/windows/init.c" "#include <windows.h>"
      "#include <windows.h>\n#undef max\n#define max(a, b) ((a) > (b) ? (a) : (b))")
  endif()
  # Of pthreadpool before 2025: threads that spin for long starve each other as soon as something
  # else runs. With two busy processes beside it, ResNet-18 took 304 ms instead of 19.
  set(file "${sources}/pthreadpool/src/threadpool-common.h")
  set(line "#define PTHREADPOOL_SPIN_WAIT_ITERATIONS 1000000")
  file(STRINGS "${file}" old REGEX "^${line}")
  if(old)
    edgewise_xnnpack_patch("${file}" "${line}" "#define PTHREADPOOL_SPIN_WAIT_ITERATIONS 1000")
  endif()
endfunction()

# Sets `out` to the prefix, or `out_reason` to why Debian's sources cannot be had.
function(edgewise_build_xnnpack_from_debian out out_reason)
  edgewise_xnnpack_prefix(prefix "${edgewise_debian_xnnpack_version}" ${edgewise_debian_pins})
  if(NOT IS_DIRECTORY "${prefix}")
    edgewise_cache_begin()
    if(NOT IS_DIRECTORY "${prefix}")
      message(STATUS "XNNPACK: fetching Debian's source packages")
      edgewise_debian_sources("${work}/sources" reason "${edgewise_debian_packages}")
      if(reason)
        file(REMOVE_RECURSE "${work}")
        set(${out_reason} "${reason}" PARENT_SCOPE)
        return()
      endif()
      message(STATUS "XNNPACK: building ${edgewise_debian_xnnpack_version} "
                     "(once; about 2 minutes on 2 cores; log in ${work})")
      set(sources "${work}/sources")
      edgewise_xnnpack_patch_debian("${sources}")
      if(WIN32)  # MinGW has POSIX threads, no C11 ones, and alloca() elsewhere
        file(WRITE "${work}/windows/alloca.h" "#include <malloc.h>\n")
        string(APPEND edgewise_xnnpack_c_flags " -DPTHREADPOOL_USE_PTHREADS=1"
               " -I${work}/windows")
      endif()
      if(NOT EDGEWISE_WASM)
        string(APPEND edgewise_xnnpack_c_flags " -DPTHREADPOOL_USE_CPUINFO=1"
               " -I${sources}/cpuinfo/include")
      endif()
      edgewise_xnnpack_build_into("${prefix}" "${work}" "${sources}/xnnpack"
        "-DCPUINFO_SOURCE_DIR=${sources}/cpuinfo" "-DPTHREADPOOL_SOURCE_DIR=${sources}/pthreadpool"
        "-DFXDIV_SOURCE_DIR=${sources}/fxdiv" -DXNNPACK_ENABLE_KLEIDIAI=OFF)
    endif()
    file(REMOVE_RECURSE "${work}")
  endif()
  set(${out} "${prefix}" PARENT_SCOPE)
endfunction()
