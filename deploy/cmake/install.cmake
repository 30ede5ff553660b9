# What `cmake --install` puts where, and the Debian packages that `cpack -G DEB` makes of it. Component `daemon`: programs, pipelines,
# schemas, service files. Component `dev`: the C++ client and the header for plug-ins, so that find_package(Feedwater) gives
# Feedwater::client and Feedwater::plugin.
include(CMakePackageConfigHelpers)
set(FEEDWATER_SHARE ${CMAKE_INSTALL_DATADIR}/feedwater)
set(FEEDWATER_CMAKE ${CMAKE_INSTALL_LIBDIR}/cmake/Feedwater)

install(TARGETS feedwaterd feedwater_decoder_program feedwater_front feedwater_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT daemon)
# What is built with .venv's pyarrow is for the build folder; one that was named is to be there where it is installed.
if(TARGET feedwater_columnar_program AND FEEDWATER_PYARROW)
  install(TARGETS feedwater_columnar_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT daemon)
endif()
install(DIRECTORY config/pipelines config/schema DESTINATION ${FEEDWATER_SHARE} COMPONENT daemon)
install(FILES config/feedwater.yaml DESTINATION ${FEEDWATER_SHARE} COMPONENT daemon)
install(DIRECTORY deploy/systemd DESTINATION ${FEEDWATER_SHARE} COMPONENT daemon)
install(FILES deploy/container/seccomp.json DESTINATION ${FEEDWATER_SHARE} COMPONENT daemon)

install(TARGETS feedwater_client feedwater_proto feedwater_plugin EXPORT FeedwaterTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
set_target_properties(feedwater_client PROPERTIES EXPORT_NAME client)
set_target_properties(feedwater_proto PROPERTIES EXPORT_NAME proto)
set_target_properties(feedwater_plugin PROPERTIES EXPORT_NAME plugin)
install(DIRECTORY client/cpp/include/feedwater proto/plugin/feedwater DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev)
install(EXPORT FeedwaterTargets NAMESPACE Feedwater:: DESTINATION ${FEEDWATER_CMAKE} COMPONENT dev)
configure_package_config_file(deploy/cmake/FeedwaterConfig.cmake.in ${CMAKE_BINARY_DIR}/FeedwaterConfig.cmake
                              INSTALL_DESTINATION ${FEEDWATER_CMAKE})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/FeedwaterConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/FeedwaterConfig.cmake ${CMAKE_BINARY_DIR}/FeedwaterConfigVersion.cmake
        DESTINATION ${FEEDWATER_CMAKE} COMPONENT dev)

include(deploy/cmake/package.cmake)
