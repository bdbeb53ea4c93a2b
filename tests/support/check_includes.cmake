# Checks that the arrows between folders point one way (CONTRIBUTING.md): reads every #include "..."
# of the program's own files and fails on one that the table below does not allow.
#   cmake -DROOT=<repository> -P check_includes.cmake
cmake_minimum_required(VERSION 3.22)

# What a part may include besides itself. A part is the longest of these prefixes of a file's path.
set(parts app datasets engine/spec engine/graph engine/layers engine/losses engine/metrics
    engine/optimizers engine/schedules engine/data engine/collectives engine/processes
    engine/checkpoints engine/downloads engine/export engine/files engine/training engine/zoo
    kernels)
set(allowed_app datasets engine/spec engine/graph engine/layers engine/losses engine/metrics
    engine/optimizers engine/schedules engine/data engine/collectives engine/processes
    engine/checkpoints engine/downloads engine/export engine/files engine/training engine/zoo
    kernels)
set(allowed_datasets engine/data engine/files engine/spec kernels)
set(allowed_engine/training engine/spec engine/graph engine/layers engine/losses engine/metrics
    engine/optimizers engine/schedules engine/data engine/collectives engine/processes
    engine/checkpoints engine/files kernels)
set(allowed_engine/checkpoints engine/files engine/graph engine/layers engine/spec kernels)
set(allowed_engine/export engine/checkpoints engine/graph engine/layers engine/spec kernels)
set(allowed_engine/graph engine/layers engine/losses engine/spec kernels)
set(allowed_engine/layers engine/spec kernels)
set(allowed_engine/losses engine/spec kernels)
set(allowed_engine/metrics engine/spec kernels)
set(allowed_engine/optimizers engine/spec kernels)
set(allowed_engine/schedules engine/metrics engine/spec kernels)
set(allowed_engine/data engine/spec kernels)
set(allowed_engine/collectives engine/spec kernels)
set(allowed_engine/files kernels)
set(allowed_engine/downloads kernels)
set(allowed_engine/processes kernels)
set(allowed_engine/spec kernels)
set(allowed_engine/zoo engine/spec)
set(allowed_kernels "")

function(part_of path result)
  set(${result} "" PARENT_SCOPE)
  foreach(part IN LISTS parts)
    string(FIND "${path}" "${part}/" at)
    if(at EQUAL 0)
      set(${result} ${part} PARENT_SCOPE)
    endif()
  endforeach()
endfunction()

set(files "")
foreach(extension cpp h cu cuh)
  file(GLOB_RECURSE found RELATIVE ${ROOT} ${ROOT}/app/*.${extension} ${ROOT}/datasets/*.${extension}
       ${ROOT}/engine/*.${extension} ${ROOT}/kernels/*.${extension})
  list(APPEND files ${found})
endforeach()
list(SORT files)
list(LENGTH files file_count)
if(file_count EQUAL 0)
  message(FATAL_ERROR "no source files below '${ROOT}'")
endif()

set(errors 0)
set(arrows 0)
foreach(file IN LISTS files)
  part_of(${file} from)
  if(NOT from)
    message(SEND_ERROR "${file}: belongs to no part; name its folder in check_includes.cmake")
    math(EXPR errors "${errors} + 1")
    continue()
  endif()
  file(STRINGS ${ROOT}/${file} lines REGEX "^[ \t]*#[ \t]*include[ \t]*\"")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^[^\"]*\"([^\"]*)\".*" "\\1" target "${line}")
    part_of(${target} to)
    math(EXPR arrows "${arrows} + 1")
    if(NOT to)
      message(SEND_ERROR "${file}: includes \"${target}\"; expected a path from the repository's root")
    elseif(NOT to STREQUAL from AND NOT to IN_LIST allowed_${from})
      message(SEND_ERROR "${file}: includes \"${target}\"; ${from} may include only: "
              "${from} ${allowed_${from}}")
    else()
      continue()
    endif()
    math(EXPR errors "${errors} + 1")
  endforeach()
endforeach()
if(errors GREATER 0)
  message(FATAL_ERROR "${errors} includes point the wrong way (CONTRIBUTING.md, Folders)")
endif()
message(STATUS "${arrows} includes in ${file_count} files, all allowed")
