# Finds the program that builds and runs containers. Sourced by scripts/build-container and
# scripts/check/container.
# shellcheck shell=bash

# find_engine NAME...: sets `engine` to $DPT_CONTAINER_ENGINE, or to the first of these that is installed
# and works: docker is on some machines without the daemon that it needs.
find_engine() {
  local name
  for name in ${DPT_CONTAINER_ENGINE:-"$@"}; do
    if command -v "$name" >/dev/null && "$name" info >/dev/null 2>&1; then
      engine=$name
      return
    fi
  done
  echo "$(basename "$0"): none of these works here: ${DPT_CONTAINER_ENGINE:-$*}; install one (apt-get" \
    "install podman)" >&2
  exit 2
}

# Makes podman and buildah build in a chroot where they cannot run a container (inside another one, or
# with control groups that the runtime does not know).
choose_isolation() {
  local folder
  [[ -z ${BUILDAH_ISOLATION:-} ]] || return 0
  folder=$(mktemp -d)
  # A shell with its libraries: an image that needs no registry.
  # shellcheck disable=SC2046  # one word a library
  cp -L --parents /bin/sh $(ldd /bin/sh | grep -o '/[^ ]*') "$folder"
  printf 'FROM scratch\nCOPY . /\nRUN ["/bin/sh", "-c", ":"]\n' >"$folder/Containerfile"
  if ! "$engine" build --no-cache -t dpt-probe "$folder" >/dev/null 2>&1; then
    export BUILDAH_ISOLATION=chroot
    echo "$(basename "$0"): $engine cannot run a container here, so it builds in a chroot"
  fi
  "$engine" rmi dpt-probe >/dev/null 2>&1 || true
  rm -rf "$folder"
}

# Prints the unpacked size of an image in MB.
size_of_image() {
  local bytes
  if [[ $engine == buildah ]]; then
    buildah images --format '{{.Size}}' "$1"
    return
  fi
  bytes=$("$engine" image inspect --format '{{.Size}}' "$1")
  awk -v bytes="$bytes" 'BEGIN {printf "%.1f", bytes / 1e6}'
}
