# A minimal Debian or Ubuntu in a folder, with a fresh clone of this repository in it. Sourced by
# scripts/check/bare and scripts/check/aarch64, with the repository's root as working directory.
# shellcheck shell=bash

# seconds_of COMMAND...: runs it and sets `elapsed`.
seconds_of() {
  local begin=$SECONDS
  "$@" || return
  elapsed=$((SECONDS - begin))
}

# Systems that make_bare_system has made.
bare_systems=()

remove_bare_systems() {
  rm -rf --one-file-system "${bare_systems[@]}"
}

# make_bare_system SUITE [NAME]: sets `root` to a new system in build/bare/NAME (DPT_BARE_DIR/NAME). All of
# them are removed when the script ends, unless $keep is "yes". The clone is $root/dpt. If
# $architecture is set (Debian's name, for example arm64), the system is for that architecture, and
# binfmt_misc must start an emulator for its programs.
make_bare_system() {
  local suite=$1 name=${2:-$1} distribution components mirror base me
  me=$(basename "$0")
  if [[ $EUID -ne 0 ]]; then
    echo "$me: needs root, for debootstrap and chroot" >&2
    exit 2
  fi
  if ! command -v debootstrap >/dev/null; then
    echo "$me: debootstrap is missing: apt-get install debootstrap" >&2
    exit 2
  fi
  case $suite in
    jammy | noble) distribution=ubuntu components=main,universe ;;
    *) distribution=debian components=main ;;
  esac

  # The mirror of this machine's apt, if it serves the wanted distribution. Security and update
  # archives are left out: they hold no whole release.
  mirror=${DPT_MIRROR:-}
  if [[ -z $mirror ]] && command -v apt-get >/dev/null; then
    # shellcheck disable=SC2016  # $(...) is apt's own syntax
    mirror=$(apt-get indextargets --format '$(ORIGIN) $(CODENAME) $(REPO_URI)' |
      awk -v origin="$distribution" 'tolower($1) == origin && $2 !~ /-/ {print $3; exit}')
  fi

  base=$(realpath -m "${DPT_BARE_DIR:-build/bare}")
  root=$base/$name
  mkdir -p "$base"
  rm -rf --one-file-system "$root"
  bare_systems+=("$root")
  [[ ${keep:-no} == yes ]] || trap remove_bare_systems EXIT

  echo "$me: creating $suite in $root"
  seconds_of debootstrap --variant=minbase ${architecture:+--arch="$architecture"} \
    --components="$components" "$suite" "$root" ${mirror:+"$mirror"} >"$base/$name.log" 2>&1 || {
    tail -n 20 "$base/$name.log" >&2
    echo "$me: debootstrap failed (log: $base/$name.log)" >&2
    exit 1
  }

  # The bare system reaches the mirror the way this machine does.
  apt-config dump | grep -E '^Acquire::(Check-|Retries|ForceIPv|http|https)' \
    >"$root/etc/apt/apt.conf.d/90host" || true
  cp -L /etc/resolv.conf "$root/etc/resolv.conf"
  if [[ $mirror == https:* && -f /etc/ssl/certs/ca-certificates.crt ]]; then
    mkdir -p "$root/etc/ssl/certs"
    cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
  fi

  # Only what is committed counts: that is what a user clones.
  git clone --quiet --no-hardlinks "$PWD" "$root/dpt"
  data=${DPT_DATA:-../shared/datasets}
  if [[ -d $data ]]; then
    data=$(realpath "$data")
    mkdir -p "$root/data"
  else
    data=''
  fi
}

# inside COMMAND: in the clone in the bare system, with nothing of this machine's environment. The
# mounts live in a namespace of their own and vanish with the command. $cuda, if it is set, is a CUDA
# toolkit of this machine that the system has at /usr/local/cuda.
inside() {
  [[ -z ${cuda:-} ]] || mkdir -p "$root/usr/local/cuda"
  # shellcheck disable=SC2016  # expanded by the inner shell
  unshare --mount --fork bash -euc '
    root=$1 command=$2 data=$3 cuda=$4
    mount -t proc proc "$root/proc"
    mount -t sysfs -o ro sysfs "$root/sys"
    mount --rbind /dev "$root/dev"
    [[ -z $data ]] || mount --bind -o ro "$data" "$root/data"
    [[ -z $cuda ]] || mount --bind -o ro "$cuda" "$root/usr/local/cuda"
    exec env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 ${data:+DPT_DATA=/data} \
      chroot "$root" bash -c "cd /dpt && exec $command"
  ' bash "$root" "$1" "$data" "${cuda:-}" </dev/null
}
