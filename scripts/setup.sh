# Shared by the scripts that build. Sourced, with the repository's root as working directory.
# shellcheck shell=bash

CMAKE_BUILD_PARALLEL_LEVEL=$(nproc)
export CMAKE_BUILD_PARALLEL_LEVEL

# Prints a heading with the seconds since the script began.
say() {
  printf '\n== %s (%d s)\n' "$*" "$SECONDS"
}

# Sets the variables of ccache.
export_cache_variables() {
  # Clones in different folders share what they compile.
  export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
  # Without these it does not cache sources that use a precompiled header.
  export CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
}

# Prints the version in the CMakeLists.txt of folder $1.
version_of() {
  sed -nE 's/^project\(dpt VERSION ([0-9.]+).*/\1/p' "$1/CMakeLists.txt"
}

# configure PRESET [cmake options...]: takes a second if nothing has changed.
configure() {
  local preset=$1 cache=()
  shift
  if command -v ccache >/dev/null; then
    export_cache_variables
    cache=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache)
  fi
  # DPT_CUDA=OFF leaves CUDA out even if there is a toolkit. Sanitizer presets have their own setting.
  [[ -z ${DPT_CUDA:-} || ! $preset =~ ^(dev|release)$ ]] || cache+=("-DDPT_CUDA=$DPT_CUDA")
  cmake --preset "$preset" "${cache[@]}" "$@" >"build/$preset.log" 2>&1 || {
    cat "build/$preset.log" >&2
    echo "configuring the preset '$preset' failed" >&2
    return 1
  }
  grep '^-- dpt' "build/$preset.log" || true
}
