# Checks where code stands that only a GPU can run (docs/internals/cuda.md): PTX and the instructions that need
# it in mma.cuh and device_time.cuh, which have a host version of each, and in files NAME_smNN.{cu,cuh}, each of which a
# test of tests/kernels/cuda must name, because it compares it with a generic kernel.
#   cmake -DROOT=<repository> -P check_gpu_only_code.cmake
cmake_minimum_required(VERSION 3.22)

set(special "asm( volatile)? *[(]" "cp[.]async" "wgmma" "__pipeline_memcpy_async" "cuda::(barrier|pipeline)"
    "__cluster_dims__" "this_cluster" "ClusterDimension" "ProgrammaticStreamSerialization"
    "cudaGridDependencySynchronize" "cudaTriggerProgrammaticLaunchCompletion" "CUtensorMap")

file(GLOB_RECURSE files RELATIVE ${ROOT} ${ROOT}/kernels/cuda/*.cu ${ROOT}/kernels/cuda/*.cuh
     ${ROOT}/kernels/cuda/*.h ${ROOT}/kernels/cuda/*.cpp ${ROOT}/kernels/common/*.h)
list(SORT files)
list(LENGTH files file_count)
if(file_count LESS 5)
  message(FATAL_ERROR "found ${file_count} files below ${ROOT}/kernels: wrong ROOT?")
endif()
file(GLOB tests ${ROOT}/tests/kernels/cuda/*.cpp)
set(tested "")
foreach(test IN LISTS tests)
  file(READ ${test} text)
  string(APPEND tested "${text}")
endforeach()

set(problems "")
foreach(path IN LISTS files)
  get_filename_component(name ${path} NAME_WE)
  if(name MATCHES "^(mma|device_time)$")
    continue()
  endif()
  if(name MATCHES "_sm[0-9]+a?$")
    string(FIND "${tested}" "${name}" at)
    if(at EQUAL -1)
      list(APPEND problems "${path}: no test in tests/kernels/cuda names ${name}: one must compare it \
with the generic kernel on a device")
    endif()
    continue()
  endif()
  file(READ ${ROOT}/${path} text)
  string(REGEX REPLACE "//[^\n]*" "" text "${text}")
  foreach(pattern IN LISTS special)
    if(text MATCHES "${pattern}")
      list(APPEND problems "${path}: '${CMAKE_MATCH_0}' is for GPUs only: it belongs in mma.cuh, with a \
host version, or in a file NAME_smNN.cu with a generic kernel")
    endif()
  endforeach()
endforeach()
if(problems)
  list(JOIN problems "\n  " text)
  message(FATAL_ERROR "code for GPUs only in the wrong place (docs/internals/cuda.md, \"Adding a kernel\"):\n  ${text}")
endif()
message(STATUS "${file_count} files")
