# Precompiled headers: what the standard library, fmt and nlohmann/json cost to parse is paid once
# for the libraries and once for the tests (which add doctest), not for every file. Only headers of
# the system are in them, so that a change of ours rebuilds what includes it and nothing else, and
# every source still includes what it uses: DPT_PRECOMPILED=OFF, as clang-tidy's and the other
# compilers' builds have it, shows a source that leans on this list.
option(DPT_PRECOMPILED "Precompile the headers of the standard library, fmt and nlohmann/json" ON)

set(dpt_precompiled_headers
    <algorithm> <array> <atomic> <cassert> <chrono> <cmath> <condition_variable> <cstddef>
    <cstdint> <cstdio> <cstdlib> <cstring> <filesystem> <fstream> <functional> <limits> <map>
    <memory> <mutex> <numeric> <optional> <set> <span> <sstream> <stdexcept> <string>
    <string_view> <thread> <utility> <vector> <fmt/format.h> <fmt/ranges.h> <nlohmann/json.hpp>)

# dpt_precompile(NAME [headers of its own...] LINKS library... OPTIONS option...): a target whose
# precompiled headers others reuse. Their flags must be the same: GCC 12 crashes over another -O.
function(dpt_precompile name)
  cmake_parse_arguments(ARG "" "" "LINKS;OPTIONS" ${ARGN})
  if(NOT DPT_PRECOMPILED)
    return()
  endif()
  set(source ${CMAKE_BINARY_DIR}/${name}.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "// Nothing: the target is there for its headers.\n")
  add_library(${name} OBJECT ${source})
  target_compile_options(${name} PRIVATE ${ARG_OPTIONS})
  target_link_libraries(${name} PRIVATE dpt_flags fmt::fmt nlohmann_json::nlohmann_json
                        OpenMP::OpenMP_CXX Threads::Threads ${ARG_LINKS})
  target_precompile_headers(${name} PRIVATE ${dpt_precompiled_headers} ${ARG_UNPARSED_ARGUMENTS})
endfunction()

# dpt_reuse_precompiled(TARGET NAME): `TARGET` is compiled with what dpt_precompile(NAME) made.
function(dpt_reuse_precompiled target name)
  if(DPT_PRECOMPILED)
    target_precompile_headers(${target} REUSE_FROM ${name})
  endif()
endfunction()
