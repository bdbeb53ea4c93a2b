# The CUDA side: AUTO takes it where the toolkit and the headers of cuDNN and NCCL are found, ON
# insists, OFF leaves it out. EMULATED is for tests: the host compiler builds kernels/cuda against
# tests/emulation, and GPUs that do not exist run on the CPU.
set(DPT_CUDA AUTO CACHE STRING "CUDA: AUTO, ON, OFF or EMULATED")
set_property(CACHE DPT_CUDA PROPERTY STRINGS AUTO ON OFF EMULATED)
if(NOT DPT_CUDA MATCHES "^(AUTO|ON|OFF|EMULATED)$")
  message(FATAL_ERROR "DPT_CUDA: expected AUTO, ON, OFF or EMULATED, found '${DPT_CUDA}'")
endif()

# Sets `missing` to what CUDA needs and this machine lacks, or to nothing.
macro(dpt_look_for_cuda)
  set(lacking "")
  include(CheckLanguage)
  if(NOT CMAKE_CUDA_COMPILER AND EXISTS /usr/local/cuda/bin/nvcc)
    set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc CACHE FILEPATH "CUDA compiler")
  endif()
  check_language(CUDA)
  find_package(CUDAToolkit 12.4 QUIET)
  if(NOT CMAKE_CUDA_COMPILER OR NOT CUDAToolkit_FOUND)
    list(APPEND lacking "the CUDA toolkit, 12.4 or later")
  else()
    find_path(DPT_CUDNN_INCLUDE_DIR cudnn_graph.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
    find_path(DPT_NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
    set(cudnn "")
    if(DPT_CUDNN_INCLUDE_DIR)
      file(STRINGS ${DPT_CUDNN_INCLUDE_DIR}/cudnn_version.h lines
           REGEX "define CUDNN_(MAJOR|MINOR|PATCHLEVEL) ")
      string(REGEX REPLACE "[^0-9;]" "" numbers "${lines}")
      list(JOIN numbers "." cudnn)
    endif()
    if(NOT cudnn OR cudnn VERSION_LESS 9.8)
      list(APPEND lacking "the headers of cuDNN 9.8 or later")
    endif()
    if(NOT DPT_NCCL_INCLUDE_DIR)
      list(APPEND lacking "the header of NCCL (nccl.h)")
    endif()
  endif()
  list(JOIN lacking ", " missing)
endmacro()

set(DPT_WITH_CUDA OFF)
set(dpt_cuda_summary "left out: CUDA (DPT_CUDA=OFF)")
if(DPT_CUDA STREQUAL "EMULATED")
  set(dpt_cuda_summary "CUDA emulated, for tests only")
elseif(NOT DPT_CUDA STREQUAL "OFF")
  dpt_look_for_cuda()
  if(missing AND DPT_CUDA STREQUAL "ON")
    message(FATAL_ERROR "DPT_CUDA=ON, but this machine lacks ${missing}")
  elseif(missing)
    set(dpt_cuda_summary "left out: CUDA (this machine lacks ${missing})")
  else()
    set(DPT_WITH_CUDA ON)
  endif()
endif()

if(DPT_WITH_CUDA)
  # Every major architecture that this compiler knows from 8.0 on, and PTX of the last for later ones.
  execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-code OUTPUT_VARIABLE known)
  string(REGEX MATCHALL "sm_[0-9]+0\n" majors "${known}")
  set(default_architectures "")
  foreach(major IN LISTS majors)
    string(REGEX REPLACE "sm_([0-9]+)\n" "\\1" number "${major}")
    if(number GREATER_EQUAL 80)
      list(APPEND default_architectures ${number}-real)
      set(last ${number})
    endif()
  endforeach()
  list(APPEND default_architectures ${last}-virtual)
  set(DPT_CUDA_ARCHITECTURES "${default_architectures}" CACHE STRING
      "Architectures of device code, as CMAKE_CUDA_ARCHITECTURES")
  set(CMAKE_CUDA_ARCHITECTURES ${DPT_CUDA_ARCHITECTURES})
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  # CMake 3.25 takes C++20 over to CUDA and then says that it has no flag for it; we give the flag.
  set(CMAKE_CUDA_STANDARD_REQUIRED OFF)
  enable_language(CUDA)
  list(JOIN DPT_CUDA_ARCHITECTURES " " architectures)
  set(dpt_cuda_summary "CUDA ${CUDAToolkit_VERSION} with cuDNN ${cudnn} for ${architectures}")

  # Flags of device code. (CMake 3.25 ignores CMAKE_CUDA_STANDARD 20 without a word.)
  add_library(dpt_cuda_flags INTERFACE)
  # cuBLASLt, cuDNN and NCCL are opened when they are first needed: only their headers are used.
  target_include_directories(dpt_cuda_flags SYSTEM INTERFACE
    ${CUDAToolkit_INCLUDE_DIRS} ${DPT_CUDNN_INCLUDE_DIR} ${DPT_NCCL_INCLUDE_DIR})
  target_compile_options(dpt_cuda_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20 --expt-relaxed-constexpr --extended-lambda -fmad=false>)
  # fmt takes nvcc for a compiler without constexpr, and then contradicts itself.
  target_compile_definitions(dpt_cuda_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CUDA>:FMT_USE_CONSTEXPR=1>)
  if(DPT_WARNINGS_AS_ERRORS)
    target_compile_options(dpt_cuda_flags INTERFACE
      $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
  endif()
  target_link_libraries(dpt_cuda_flags INTERFACE CUDA::cudart_static ${CMAKE_DL_LIBS})
endif()
