# complete.bash SCRIPT LINE OUT: types LINE into an interactive bash on a terminal, has readline insert
# all completions, and writes the words that the line then has into OUT, one a line.
set -euo pipefail
script=$1 line=$2 out=$3
rc=$(mktemp)
trap 'rm -f "$rc"' EXIT
cat >"$rc" <<END
$([[ -z ${BEFORE:-} ]] || echo "source '$BEFORE'")
source '$script'
bind 'set bell-style none'
bind 'set enable-bracketed-paste off'
bind '"\C-t": insert-completions'
show() { printf '%s\n' "\$@" >'$out'; exit; }
END
# Control-t: complete. Control-a: go to the beginning of the line.
printf '%s\024\001show \r' "$line" |
  script --quiet --echo never --command "bash --noprofile --rcfile '$rc' -i" /dev/null >/dev/null
