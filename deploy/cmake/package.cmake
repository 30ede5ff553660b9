# Debian packages: feedwater (the daemon and the command line) and libfeedwater-dev (the C++ client). `scripts/package` makes them.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME feedwater)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "Feedwater developers <feedwater@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_COMPONENTS_ALL daemon dev)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)

set(CPACK_DEBIAN_DAEMON_PACKAGE_NAME feedwater)
set(CPACK_DEBIAN_DAEMON_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_DAEMON_PACKAGE_RECOMMENDS graphviz)
set(CPACK_DEBIAN_DAEMON_PACKAGE_CONTROL_EXTRA
    "${CMAKE_SOURCE_DIR}/deploy/debian/postinst;${CMAKE_SOURCE_DIR}/deploy/debian/prerm;${CMAKE_SOURCE_DIR}/deploy/debian/postrm;${CMAKE_SOURCE_DIR}/deploy/debian/conffiles")
set(CPACK_DEBIAN_DAEMON_DESCRIPTION
    "Data loading daemon for training hosts\n Reads datasets with io_uring, runs an augmentation graph and hands batches to trainers\n through shared memory, in distributed-rank order.")

set(CPACK_DEBIAN_DEV_PACKAGE_NAME libfeedwater-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "libabsl-dev, libprotobuf-dev, libgrpc++-dev, protobuf-compiler-grpc")
set(CPACK_DEBIAN_DEV_DESCRIPTION "C++ client of Feedwater, the data loading daemon\n Header, static library and CMake package: find_package(Feedwater).")

# Where systemd and Debian look, in the package alone: `cmake --install` leaves the system's folders as they are.
if(FEEDWATER_SYSTEM_FILES)
  install(FILES deploy/systemd/feedwaterd@.service deploy/systemd/feedwaterd@.socket DESTINATION /lib/systemd/system
          COMPONENT daemon)
  install(FILES deploy/systemd/sysusers.conf DESTINATION /usr/lib/sysusers.d RENAME feedwater.conf COMPONENT daemon)
  install(FILES deploy/systemd/tmpfiles.conf DESTINATION /usr/lib/tmpfiles.d RENAME feedwater.conf COMPONENT daemon)
  install(FILES deploy/debian/feedwater.yaml DESTINATION /etc/feedwater COMPONENT daemon)
  # The licence, and those of what is within the programs.
  file(READ LICENSE copyright)
  foreach(package libhighwayhash-dev libexpat1-dev libyaml-cpp-dev libxxhash-dev libutf8proc-dev libflac-dev libvorbis-dev
                  libogg-dev libopus-dev libcli11-dev nlohmann-json3-dev)
    file(READ /usr/share/doc/${package}/copyright theirs)
    string(APPEND copyright "\n---------- within the programs: ${package}\n\n${theirs}")
  endforeach()
  file(WRITE ${CMAKE_BINARY_DIR}/copyright "${copyright}")
  install(FILES ${CMAKE_BINARY_DIR}/copyright DESTINATION /usr/share/doc/feedwater COMPONENT daemon)
  install(FILES LICENSE DESTINATION /usr/share/doc/libfeedwater-dev RENAME copyright COMPONENT dev)
  install(FILES ${CMAKE_BINARY_DIR}/completion/feedwater DESTINATION /usr/share/bash-completion/completions
          COMPONENT daemon)
  add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/completion/feedwater
                     COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/completion
                     COMMAND $<TARGET_FILE:feedwater_cli> completion bash > ${CMAKE_BINARY_DIR}/completion/feedwater
                     DEPENDS feedwater_cli VERBATIM)
  add_custom_target(feedwater_completion ALL DEPENDS ${CMAKE_BINARY_DIR}/completion/feedwater)
endif()
include(CPack)
