# edgewise_link_whole(<edgewise::name> <archive>): makes the target that users link, for an
# archive whose parts register themselves from static objects that nothing refers to. A linker
# would leave them out; linking this target, directly or through other libraries, takes all.
include_guard(GLOBAL)

function(edgewise_link_whole name archive)
  add_library(${archive}_whole INTERFACE)
  if(CMAKE_SYSTEM_NAME STREQUAL "Generic")  # of whose linker CMake knows no such option
    target_link_libraries(${archive}_whole INTERFACE "$<TARGET_OBJECTS:${archive}>" ${archive})
  else()
    target_link_libraries(${archive}_whole INTERFACE "$<LINK_LIBRARY:WHOLE_ARCHIVE,${archive}>")
  endif()
  add_library(${name} ALIAS ${archive}_whole)
endfunction()
