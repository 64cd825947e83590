# Says what to do where there is no compiler: what CMake says of that is long, and of CMake.
include_guard(GLOBAL)

# Stops if neither `variable` of the environment nor one of `names` is a program.
function(edgewise_require_compiler language variable names)
  # A generator or a toolchain may know better than the search path.
  if(CMAKE_${language}_COMPILER OR NOT CMAKE_HOST_UNIX OR CMAKE_GENERATOR MATCHES "Xcode")
    return()
  endif()
  if(NOT "$ENV{${variable}}" STREQUAL "")  # scikit-build-core sets it to what Python was built with
    separate_arguments(words UNIX_COMMAND "$ENV{${variable}}")
    list(GET words 0 names)
  endif()
  find_program(EDGEWISE_${language}_FOUND NAMES ${names})
  mark_as_advanced(EDGEWISE_${language}_FOUND)
  if(NOT EDGEWISE_${language}_FOUND)
    list(JOIN names ", " names)
    message(FATAL_ERROR
      " [edgewise] building needs compilers for C and C++20; got none of ${names} on PATH\n"
      " try `apt-get install g++`, or a wheel: `pip install --only-binary edgewise edgewise`\n")
  endif()
endfunction()

edgewise_require_compiler(C CC "cc;gcc;clang;icx;cl")
edgewise_require_compiler(CXX CXX "c++;g++;clang++;icpx;cl")
