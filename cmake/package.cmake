# Debian packages, made by scripts/package: `dpt`, and with CUDA `dpt-cuda`, which takes its place.
# The version ends with the release that the package is of (0.1.0-1~deb12): libraries differ between
# releases, and an upgrade of the system then has a newer package to go to.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME dpt)
if(DPT_WITH_CUDA)
  set(CPACK_PACKAGE_NAME dpt-cuda)
endif()
set(DPT_MAINTAINER "The dpt authors <maintainers@dpt.example.org>" CACHE STRING
    "Who makes the package: NAME <ADDRESS>")
set(DPT_HOMEPAGE "" CACHE STRING "Where the package says that dpt is at home")

# The release of this system: deb12, ubuntu24.04.
set(dpt_release "")
if(EXISTS /etc/os-release)
  file(STRINGS /etc/os-release lines REGEX "^(ID|VERSION_ID)=")
  string(REGEX REPLACE "[^;A-Za-z0-9_=.]" "" lines "${lines}")
  foreach(line IN LISTS lines)
    string(REGEX MATCH "^([A-Z_]+)=(.*)$" matched "${line}")
    set(os_${CMAKE_MATCH_1} "${CMAKE_MATCH_2}")
  endforeach()
  string(REPLACE "debian" "deb" dpt_release "${os_ID}${os_VERSION_ID}")
endif()
set(DPT_PACKAGE_RELEASE "1~${dpt_release}" CACHE STRING "Debian revision of the package")

set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_DEBIAN_PACKAGE_RELEASE ${DPT_PACKAGE_RELEASE})
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_PACKAGE_CONTACT "${DPT_MAINTAINER}")
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "${DPT_MAINTAINER}")
set(CPACK_DEBIAN_PACKAGE_HOMEPAGE "${DPT_HOMEPAGE}")
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ
    GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_OUTPUT_FILE_PREFIX ${CMAKE_BINARY_DIR}/packages)

# CPack indents the lines, and writes an empty one as Debian has it.
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "data-parallel trainer of image classifiers")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "dpt trains the network that a YAML file describes, with one replica of it on
each device, and writes a run folder with a log and checkpoints in
safetensors format. Every mistake in a config is reported before anything
runs, a killed run resumes where it stopped, and the weights can be made
bit-identical for any number of replicas.
")
# Each has /usr/bin/dpt. Whatever depends on dpt is content with either.
if(DPT_WITH_CUDA)
  set(CPACK_DEBIAN_PACKAGE_SECTION contrib/science)
  string(APPEND CPACK_DEBIAN_PACKAGE_DESCRIPTION "
This package trains on NVIDIA GPUs and on CPUs. The driver, cuBLASLt, cuDNN
and NCCL come from NVIDIA; dpt looks for these libraries when a run uses a
GPU.")
  set(CPACK_DEBIAN_PACKAGE_PROVIDES "dpt (= ${PROJECT_VERSION}-${DPT_PACKAGE_RELEASE})")
  set(CPACK_DEBIAN_PACKAGE_CONFLICTS dpt)
  set(CPACK_DEBIAN_PACKAGE_REPLACES dpt)
  # Debian has none of the libraries. Recommended, not required: apt takes those of NVIDIA's package
  # archive where that is known, and the package can be installed where they came by other ways.
  set(CPACK_DEBIAN_PACKAGE_RECOMMENDS
      "ca-certificates, libcublas-${CUDAToolkit_VERSION_MAJOR}-${CUDAToolkit_VERSION_MINOR}, libcudnn9-cuda-${CUDAToolkit_VERSION_MAJOR}, libnccl2")
else()
  string(APPEND CPACK_DEBIAN_PACKAGE_DESCRIPTION "
This package trains on CPUs; dpt-cuda is for NVIDIA GPUs too.")
  set(CPACK_DEBIAN_PACKAGE_RECOMMENDS ca-certificates)  # for downloads of weights
  set(CPACK_DEBIAN_PACKAGE_CONFLICTS dpt-cuda)
  set(CPACK_DEBIAN_PACKAGE_REPLACES dpt-cuda)
endif()

if(DPT_DEBIAN)
  find_program(DPT_GZIP gzip REQUIRED)
  # The licence as a Debian copyright file: lines are indented, an empty one is a dot.
  file(READ ${CMAKE_SOURCE_DIR}/LICENSE licence)
  string(REGEX MATCH "Copyright \\(c\\) ([^\n]*)" matched "${licence}")
  set(dpt_copyright "${CMAKE_MATCH_1}")
  string(FIND "${licence}" "Permission is hereby granted" begin)
  string(SUBSTRING "${licence}" ${begin} -1 licence)
  string(REPLACE "\n\n" "\n.\n" licence "${licence}")
  string(STRIP "${licence}" licence)
  string(REPLACE "\n" "\n " dpt_licence " ${licence}\n")
  string(STRIP "${dpt_licence}" dpt_licence)
  configure_file(${CMAKE_SOURCE_DIR}/cmake/debian_copyright.in ${CMAKE_BINARY_DIR}/debian/copyright @ONLY)
  # SOURCE_DATE_EPOCH, if it is set, is the time.
  string(TIMESTAMP dpt_changelog_date "%a, %d %b %Y %H:%M:%S +0000" UTC)
  configure_file(${CMAKE_SOURCE_DIR}/cmake/debian_changelog.in ${CMAKE_BINARY_DIR}/debian/changelog.Debian @ONLY)
  configure_file(${CMAKE_SOURCE_DIR}/CHANGELOG.md ${CMAKE_BINARY_DIR}/debian/changelog COPYONLY)
  execute_process(COMMAND ${DPT_GZIP} -9nf changelog changelog.Debian
                  WORKING_DIRECTORY ${CMAKE_BINARY_DIR}/debian COMMAND_ERROR_IS_FATAL ANY)
  install(FILES ${CMAKE_BINARY_DIR}/debian/copyright ${CMAKE_BINARY_DIR}/debian/changelog.gz
                ${CMAKE_BINARY_DIR}/debian/changelog.Debian.gz DESTINATION ${CMAKE_INSTALL_DOCDIR})
endif()
include(CPack)
