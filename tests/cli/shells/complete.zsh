# complete.zsh SCRIPT LINE OUT: types LINE and a tab into an interactive zsh with its completion system,
# and writes what is offered into OUT, one a line.
zmodload zsh/zpty
work=$(mktemp -d)
mkdir $work/functions
cp $1 $work/functions/_dpt
cat >$work/setup <<END
fpath=($work/functions \$fpath)
autoload -Uz compinit
compinit -u -d $work/dump
LISTMAX=10000
unsetopt beep
# What completes calls compadd for all that it offers; -O, -A and -D are calls that only ask.
compadd() {
  if [[ \${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then
    builtin compadd "\$@"
    return
  fi
  local -a offered
  builtin compadd -O offered "\$@"
  (( \$#offered )) && print -rl -- \$offered >>$3
  builtin compadd "\$@"
}
finish() { touch $work/done }
zle -N finish
bindkey '^T' finish
END
zpty shell env TERM=dumb zsh -f -i
zpty -w shell "source $work/setup"
zpty -w -n shell "$2"$'\t'$'\024'
until [[ -e $work/done ]]; do
  zpty -r -t shell echoed || sleep 0.02
done
zpty -d shell
rm -rf $work
