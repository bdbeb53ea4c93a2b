# Everything that dpt takes from the system. docs/guide/install.md says what each is for.

# find_package, but a missing one says which package of the distribution brings it.
macro(dpt_find_package name package)
  find_package(${name} QUIET ${ARGN})
  if(NOT ${name}_FOUND)
    message(FATAL_ERROR "${name} was not found: install ${package} (Debian's name), or run scripts/install-deps")
  endif()
endmacro()
dpt_find_package(Threads g++)
dpt_find_package(OpenMP g++ COMPONENTS CXX)
dpt_find_package(fmt libfmt-dev)
dpt_find_package(spdlog libspdlog-dev)
dpt_find_package(yaml-cpp libyaml-cpp-dev)
dpt_find_package(nlohmann_json nlohmann-json3-dev)
dpt_find_package(CLI11 libcli11-dev)
dpt_find_package(ZLIB zlib1g-dev)
dpt_find_package(JPEG libjpeg-dev)
dpt_find_package(PNG libpng-dev)
dpt_find_package(TIFF libtiff-dev)
dpt_find_package(GIF libgif-dev)
dpt_find_package(CURL libcurl4-openssl-dev)
# The library and the compiler of messages, which is a package of its own.
dpt_find_package(Protobuf "libprotobuf-dev and protobuf-compiler")
if(NOT TARGET protobuf::protoc OR NOT TARGET protobuf::libprotobuf-lite)
  message(FATAL_ERROR "protoc was not found: install protobuf-compiler (Debian's name), or run scripts/install-deps")
endif()
# yaml-cpp 0.8 calls its target yaml-cpp::yaml-cpp, and may come without the older name.
if(TARGET yaml-cpp::yaml-cpp AND NOT TARGET yaml-cpp)
  add_library(yaml-cpp ALIAS yaml-cpp::yaml-cpp)
endif()

# Debian 12's dnnl package file asks for OpenCL headers that the CPU build does not need, so oneDNN
# and xxHash are looked up by header and library.
function(dpt_find_library target header library package)
  find_path(${target}_INCLUDE_DIR ${header})
  find_library(${target}_LIBRARY ${library})
  if(NOT ${target}_INCLUDE_DIR OR NOT ${target}_LIBRARY)
    message(FATAL_ERROR "${library} was not found: install ${package} (Debian's name), or run scripts/install-deps")
  endif()
  add_library(${target} INTERFACE)
  target_include_directories(${target} SYSTEM INTERFACE ${${target}_INCLUDE_DIR})
  target_link_libraries(${target} INTERFACE ${${target}_LIBRARY})
endfunction()
dpt_find_library(dpt_onednn dnnl.hpp dnnl libdnnl-dev)
dpt_find_library(dpt_xxhash xxhash.h xxhash libxxhash-dev)
# Debian 12's libwebp has no package file for CMake.
dpt_find_library(dpt_webp webp/decode.h webp libwebp-dev)
dpt_find_library(dpt_webpdemux webp/demux.h webpdemux libwebp-dev)
include(CheckCXXSymbolExists)
# Functions that choose between vector instructions, where the library was built with them.
set(CMAKE_REQUIRED_INCLUDES ${dpt_xxhash_INCLUDE_DIR})
set(CMAKE_REQUIRED_LIBRARIES ${dpt_xxhash_LIBRARY})
check_cxx_symbol_exists(XXH3_64bits_dispatch xxh_x86dispatch.h DPT_XXHASH_DISPATCH)
unset(CMAKE_REQUIRED_INCLUDES)
unset(CMAKE_REQUIRED_LIBRARIES)
if(DPT_XXHASH_DISPATCH)
  target_compile_definitions(dpt_xxhash INTERFACE DPT_XXHASH_DISPATCH)
endif()

# Chart.js draws the curves of a report (app/report): one file of JavaScript, which becomes a part of
# the program. DPT_CHARTS_FILE may name another copy of it.
set(DPT_CHARTS AUTO CACHE STRING "dpt report, for which Chart.js is embedded: AUTO, ON or OFF")
set(dpt_charts "")
set(dpt_charts_summary "no dpt report (DPT_CHARTS is OFF)")
if(NOT DPT_CHARTS STREQUAL "OFF")
  # It is of no architecture, so it may come from the system that builds.
  find_file(DPT_CHARTS_FILE NAMES chart.min.js chart.umd.js
            PATHS /usr/share/javascript/chart.js /usr/share/nodejs/chart.js/dist
            NO_CMAKE_FIND_ROOT_PATH)
  mark_as_advanced(DPT_CHARTS_FILE)
  set(dpt_charts_summary "no dpt report (Chart.js was not found: install libjs-chart.js, Debian's name)")
  if(EXISTS "${DPT_CHARTS_FILE}")
    file(READ ${DPT_CHARTS_FILE} banner LIMIT 200)
    # Version 2 has other options, and writes styles that the page does not allow.
    if(banner MATCHES "Chart.js v([34][.0-9]+)")
      set(dpt_charts ${DPT_CHARTS_FILE})
      set(dpt_charts_summary "Chart.js ${CMAKE_MATCH_1}")
    else()
      set(dpt_charts_summary "no dpt report (${DPT_CHARTS_FILE} is not Chart.js 3 or 4)")
    endif()
  endif()
  if(DPT_CHARTS STREQUAL "ON" AND NOT dpt_charts)
    message(FATAL_ERROR "${dpt_charts_summary}, or run scripts/install-deps")
  endif()
endif()

# Asio is headers only, and can be used with Boost or without.
find_path(dpt_asio_INCLUDE_DIR asio.hpp)
if(NOT dpt_asio_INCLUDE_DIR)
  message(FATAL_ERROR "asio was not found: install libasio-dev (Debian's name), or run scripts/install-deps")
endif()
add_library(dpt_asio INTERFACE)
target_include_directories(dpt_asio SYSTEM INTERFACE ${dpt_asio_INCLUDE_DIR})
target_compile_definitions(dpt_asio INTERFACE ASIO_STANDALONE ASIO_NO_DEPRECATED)
target_link_libraries(dpt_asio INTERFACE Threads::Threads)
if(DPT_SANITIZE STREQUAL "thread")
  # ThreadSanitizer does not know fences; what asio hands over between threads has a lock, too.
  target_compile_definitions(dpt_asio INTERFACE ASIO_DISABLE_FENCED_BLOCK)
endif()

# oneDNN keeps its version in a header of its own.
function(dpt_onednn_version result)
  find_file(DPT_ONEDNN_VERSION_HEADER NAMES oneapi/dnnl/dnnl_version.h dnnl_version.h
            HINTS ${dpt_onednn_INCLUDE_DIR})
  mark_as_advanced(DPT_ONEDNN_VERSION_HEADER)
  set(version "")
  if(DPT_ONEDNN_VERSION_HEADER)
    foreach(part MAJOR MINOR PATCH)
      file(STRINGS ${DPT_ONEDNN_VERSION_HEADER} line REGEX "define DNNL_VERSION_${part} ")
      string(REGEX MATCH "[0-9]+" number "${line}")
      list(APPEND version ${number})
    endforeach()
    list(JOIN version "." version)
  endif()
  set(${result} "${version}" PARENT_SCOPE)
endfunction()

# One line that says what this build has and what it leaves out.
dpt_onednn_version(onednn)
message(STATUS "dpt ${PROJECT_VERSION}: CPU with oneDNN ${onednn}, zlib ${ZLIB_VERSION_STRING}, "
               "libjpeg ${JPEG_VERSION}, libpng ${PNG_VERSION_STRING}, libtiff ${TIFF_VERSION_STRING}, giflib ${GIF_VERSION}, libwebp, libcurl ${CURL_VERSION_STRING}, protobuf ${Protobuf_VERSION}; "
               "${dpt_charts_summary}; ${dpt_cuda_summary}")
