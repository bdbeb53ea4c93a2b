# Checks that the arrows between folders point one way (CONTRIBUTING.md): reads every #include "..."
# of the program's own files and fails on one that the table below does not allow.
#   cmake -DROOT=<repository> -P check_includes.cmake
cmake_minimum_required(VERSION 3.22)

# What a part may include besides itself. A part is the longest of these prefixes of a file's path.
set(parts app app/base app/bench app/cli app/config app/evaluate app/export app/gate app/help
    app/inspect app/report app/runs app/train datasets engine/checkpoints engine/collectives
    engine/config engine/data engine/downloads engine/export engine/graph engine/job engine/layers
    engine/losses engine/measurements engine/metrics engine/optimizers engine/processes
    engine/replica engine/run engine/schedules engine/self_check engine/training engine/zoo kernels
    kernels/base kernels/common kernels/cpu kernels/cpu/simd kernels/cuda kernels/image kernels/reference)
# What every part of app may include.
set(below_app datasets engine/checkpoints engine/collectives engine/config engine/data
    engine/downloads engine/export engine/graph engine/job engine/layers engine/losses
    engine/measurements engine/metrics engine/optimizers engine/processes engine/replica engine/run
    engine/schedules engine/self_check engine/training engine/zoo kernels kernels/base kernels/image)
set(allowed_app app/cli ${below_app})
set(allowed_app/base ${below_app})
set(allowed_app/bench app/base app/train ${below_app})
set(allowed_app/cli app/base app/bench app/config app/evaluate app/export app/gate app/help
    app/inspect app/report app/runs app/train ${below_app})
set(allowed_app/config app/base app/train ${below_app})
set(allowed_app/evaluate app/base app/gate ${below_app})
set(allowed_app/export app/base app/evaluate ${below_app})
set(allowed_app/gate app/base app/runs ${below_app})
set(allowed_app/help app/base ${below_app})
set(allowed_app/inspect app/base app/evaluate app/train ${below_app})
set(allowed_app/report app/base app/evaluate app/inspect app/runs ${below_app})
set(allowed_app/runs app/base ${below_app})
set(allowed_app/train app/base app/evaluate app/export app/gate ${below_app})
set(allowed_datasets engine/config engine/data kernels/base kernels/image)
set(allowed_engine/checkpoints engine/config engine/graph engine/layers kernels/base)
set(allowed_engine/collectives kernels kernels/base)
set(allowed_engine/config kernels/base)
set(allowed_engine/data engine/config kernels kernels/base kernels/image)
set(allowed_engine/downloads kernels/base)
set(allowed_engine/export engine/checkpoints engine/graph engine/layers kernels/base)
set(allowed_engine/graph engine/config engine/layers engine/losses kernels kernels/base)
set(allowed_engine/job engine/checkpoints engine/collectives engine/config engine/data engine/graph
    engine/layers engine/losses engine/metrics engine/optimizers engine/processes engine/schedules
    kernels kernels/base)
set(allowed_engine/layers engine/config kernels kernels/base kernels/common)
set(allowed_engine/losses engine/config kernels)
set(allowed_engine/measurements engine/config engine/graph engine/job engine/run kernels kernels/base)
set(allowed_engine/metrics engine/config kernels kernels/base)
set(allowed_engine/optimizers engine/config kernels kernels/base kernels/common)
set(allowed_engine/processes engine/collectives engine/config kernels kernels/base)
set(allowed_engine/replica engine/collectives engine/data engine/graph engine/job engine/layers
    engine/measurements engine/optimizers engine/run kernels kernels/base kernels/common)
set(allowed_engine/run engine/checkpoints engine/config engine/data engine/job engine/processes
    kernels kernels/base)
set(allowed_engine/schedules engine/config engine/metrics)
set(allowed_engine/self_check engine/collectives engine/config engine/graph engine/job engine/replica
    kernels kernels/base kernels/common kernels/reference)
set(allowed_engine/training engine/checkpoints engine/collectives engine/config engine/data
    engine/graph engine/job engine/optimizers engine/processes engine/replica engine/run
    engine/schedules engine/self_check kernels kernels/base kernels/common)
set(allowed_engine/zoo engine/config)
# devices.cpp makes the backends; kernels/bench times them.
set(allowed_kernels kernels/base kernels/common kernels/cpu kernels/cpu/simd kernels/cuda)
set(allowed_kernels/base "")
set(allowed_kernels/common kernels kernels/base)
set(allowed_kernels/cpu kernels kernels/base kernels/common kernels/cpu/simd)
set(allowed_kernels/cpu/simd kernels kernels/base kernels/common)
set(allowed_kernels/cuda kernels kernels/base kernels/common)
set(allowed_kernels/image kernels/base)
set(allowed_kernels/reference kernels kernels/base kernels/common)

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
