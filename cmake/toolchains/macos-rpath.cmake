# Read by CMake after its own settings for the system. It asks `sw_vers` whether macOS knows @rpath, and
# takes no answer for no.
set(CMAKE_SHARED_LIBRARY_RUNTIME_C_FLAG "-Wl,-rpath,")
