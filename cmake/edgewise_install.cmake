# What `cmake --install` gives users of C++ and C: find_package(edgewise) with edgewise::runtime,
# edgewise::kernels, edgewise::xnnpack_backend and edgewise::c, and edgewise.pc. Component
# "devel"; the runner is component "tools", the Python module component "python".
include_guard(GLOBAL)
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Target and its name after edgewise:: in the package, whose configuration file makes of the
# archives what edgewise_link_whole makes of them here: CMake exports no $<LINK_LIBRARY:...>.
set(edgewise_exports
  edgewise_runtime=runtime
  edgewise_kernels=kernels_archive
  edgewise_xnnpack_backend=xnnpack_backend_archive
  edgewise_options=options)
if(EDGEWISE_BUILD_C)
  list(APPEND edgewise_exports edgewise_c=c)
endif()
set(edgewise_targets "")
foreach(pair IN LISTS edgewise_exports)
  string(REPLACE "=" ";" pair "${pair}")
  list(GET pair 0 target)
  list(GET pair 1 name)
  set_target_properties(${target} PROPERTIES EXPORT_NAME "${name}")
  list(APPEND edgewise_targets ${target})
endforeach()

install(TARGETS ${edgewise_targets} EXPORT edgewise_targets
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT devel
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT devel
  RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT devel)
if(EDGEWISE_BUILD_TOOLS)
  install(TARGETS edgewise_run RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT tools)
endif()
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
install(DIRECTORY "${PROJECT_SOURCE_DIR}/licenses/"
  DESTINATION "${CMAKE_INSTALL_DATADIR}/edgewise/licenses" COMPONENT devel)
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE"
  DESTINATION "${CMAKE_INSTALL_DATADIR}/edgewise/licenses" RENAME edgewise.txt COMPONENT devel)
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

if(EDGEWISE_BUILD_C)
  # For C without CMake. Its folders are found from where the file lies, so that the installed
  # tree can be moved.
  file(RELATIVE_PATH edgewise_pc_prefix "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
  configure_file("${PROJECT_SOURCE_DIR}/cmake/edgewise.pc.in" "${PROJECT_BINARY_DIR}/edgewise.pc"
                 @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/edgewise.pc"
    DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT devel)
endif()
