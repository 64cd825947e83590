# What `cmake --install` gives C++ users: find_package(edgewise) with edgewise::runtime,
# edgewise::kernels and edgewise::xnnpack_backend. Component "devel"; the Python module is
# component "python".
include_guard(GLOBAL)
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(edgewise_libraries edgewise_runtime edgewise_kernels edgewise_xnnpack_backend)
foreach(library IN LISTS edgewise_libraries)
  string(REPLACE "edgewise_" "" name "${library}")
  set_target_properties(${library} PROPERTIES EXPORT_NAME "${name}")
endforeach()
set_target_properties(edgewise_options PROPERTIES EXPORT_NAME options)

install(TARGETS ${edgewise_libraries} edgewise_options EXPORT edgewise_targets
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT devel
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT devel
  OBJECTS DESTINATION "${CMAKE_INSTALL_LIBDIR}/edgewise/objects" COMPONENT devel)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/native/include/" TYPE INCLUDE COMPONENT devel)

set(edgewise_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/edgewise")
install(EXPORT edgewise_targets FILE edgewise-targets.cmake NAMESPACE edgewise::
  DESTINATION "${edgewise_package_dir}" COMPONENT devel)

# XNNPACK goes along if we built it; else users need the system's, too.
if(EDGEWISE_XNNPACK_PREFIX)
  install(DIRECTORY "${EDGEWISE_XNNPACK_PREFIX}/lib/"
    DESTINATION "${CMAKE_INSTALL_LIBDIR}/edgewise" COMPONENT devel FILES_MATCHING PATTERN "*.a")
  install(DIRECTORY "${EDGEWISE_XNNPACK_PREFIX}/licenses/"
    DESTINATION "${CMAKE_INSTALL_DATADIR}/edgewise/licenses" COMPONENT devel)
  if(edgewise_is_wheel)
    install(DIRECTORY "${EDGEWISE_XNNPACK_PREFIX}/licenses/"
      DESTINATION edgewise/runtime/licenses COMPONENT python)
  endif()
endif()
configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/edgewise-config.cmake.in"
  "${PROJECT_BINARY_DIR}/edgewise-config.cmake"
  INSTALL_DESTINATION "${edgewise_package_dir}"
  PATH_VARS CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/edgewise-config-version.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/edgewise-config.cmake"
              "${PROJECT_BINARY_DIR}/edgewise-config-version.cmake"
  DESTINATION "${edgewise_package_dir}" COMPONENT devel)
