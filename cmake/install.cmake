# What `cmake --install` leaves: the public headers, one shared library, the program, and a package that
# find_package(galvani) understands. Consumers link galvani::galvani and need nothing but tl-expected, which the public
# headers mention; everything else stays inside the shared library (docs/adr/0008-install-shared-library.md).
option(GALVANI_INSTALL "Build the shared library and the install target" ON)
if(NOT GALVANI_INSTALL)
  return()
endif()
include(CMakePackageConfigHelpers)

add_library(galvani_shared SHARED ${CMAKE_CURRENT_LIST_DIR}/shared_library.cpp)
set_target_properties(galvani_shared PROPERTIES
  OUTPUT_NAME galvani EXPORT_NAME galvani VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
target_include_directories(galvani_shared PUBLIC
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
# All objects of the static library, not only those that something refers to.
target_link_libraries(galvani_shared PUBLIC tl::expected
  PRIVATE $<LINK_LIBRARY:WHOLE_ARCHIVE,galvani> galvani_dependencies)
# An unresolved symbol is found here, not by the first consumer. Sanitizer builds leave theirs to the program.
if(NOT GALVANI_SANITIZE)
  target_link_options(galvani_shared PRIVATE LINKER:--no-undefined)
endif()

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/galvani)
install(TARGETS galvani_shared EXPORT galvani-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/galvani DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(EXPORT galvani-targets NAMESPACE galvani:: DESTINATION ${package_folder})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/galvani-config.cmake.in
  ${CMAKE_BINARY_DIR}/galvani-config.cmake INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/galvani-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/galvani-config.cmake ${CMAKE_BINARY_DIR}/galvani-config-version.cmake
  DESTINATION ${package_folder})
if(EXISTS ${PROJECT_SOURCE_DIR}/LICENSE)
  install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
endif()
# A CUDA build finds cuBLASLt where it was linked, e.g. in the toolkit that scripts/cuda-13.0 fetched.
set_target_properties(galvani_shared PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
if(TARGET galvani_cli)
  set_target_properties(galvani_cli PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
  install(TARGETS galvani_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
