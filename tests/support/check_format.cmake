# Checks that every C++ and CUDA file obeys .clang-format.
#   cmake -DROOT=<repository> -P check_format.cmake
# Versions of clang-format differ in what they make of one style file, so exactly one of them
# decides: 14, which Debian 12 and Ubuntu 22.04 have. With another one the check is skipped.
cmake_minimum_required(VERSION 3.22)
set(wanted 14)

find_program(CLANG_FORMAT NAMES clang-format-${wanted} clang-format)
if(NOT CLANG_FORMAT)
  message(STATUS "SKIPPED: there is no clang-format (the package clang-format-${wanted} brings it)")
  return()
endif()
execute_process(COMMAND ${CLANG_FORMAT} --version OUTPUT_VARIABLE version
                OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
if(NOT version MATCHES "version ${wanted}\\.")
  message(STATUS "SKIPPED: the style is that of clang-format ${wanted}, here is '${version}'")
  return()
endif()

set(files "")
foreach(extension cpp h cu cuh)
  foreach(folder app datasets engine kernels tests)
    file(GLOB_RECURSE found ${ROOT}/${folder}/*.${extension})
    list(APPEND files ${found})
  endforeach()
endforeach()
list(LENGTH files file_count)
execute_process(COMMAND ${CLANG_FORMAT} --dry-run --Werror ${files} WORKING_DIRECTORY ${ROOT}
                RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "not formatted: run ${CLANG_FORMAT} -i on the files named above")
endif()
message(STATUS "${file_count} files are formatted")
