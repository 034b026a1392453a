# Completion of the grus command for bash.

_grus_vendors() {
  local file
  local -a names=()
  for file in /etc/OpenCL/vendors/*.icd /etc/OpenCL/vendors/*.icd.grus; do
    [[ -e $file ]] || continue
    file=${file##*/}
    file=${file%.grus}
    names+=("${file%.icd}")
  done
  mapfile -t COMPREPLY < <(compgen -f -- "$1"; compgen -W "${names[*]}" -- "$1")
}

# Process ids of this user's programs. Their names would have to be asked for, and one that is busy answers late.
_grus_sessions() {
  local file folder=${XDG_RUNTIME_DIR:-/run/user/$UID}
  local -a ids=(all)
  [[ -d $folder ]] && folder+=/grus || folder=/tmp/grus-$UID
  for file in "$folder"/session-*.sock; do
    [[ -e $file ]] || continue
    file=${file##*/session-}
    ids+=("${file%.sock}")
  done
  mapfile -t COMPREPLY < <(compgen -W "${ids[*]}" -- "$1")
}

# What its help names. `grus vm` and `grus profile` have subcommands of their own.
_grus_options() {
  local -a of=("$1")
  [[ $1 == vm || $1 == profile ]] && [[ $2 == [a-z]* ]] && of+=("$2")
  "${COMP_WORDS[0]}" "${of[@]}" --help 2> /dev/null | grep -oE '^ +(-[a-z],)?--[a-z-]+' | grep -oE -- '--[a-z-]+'
  [[ $1 != run ]] || echo --
}

_grus() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} subcommand=${COMP_WORDS[1]}
  local options
  if ((COMP_CWORD == 1)); then
    mapfile -t COMPREPLY < <(compgen -W "run info serve ps tenants top move drain suspend resume checkpoint restore why profile keys relay vm agent bench enable disable
      --help --version" -- "$word")
    return
  fi

  if [[ $subcommand == run ]]; then
    # From the program on, complete as for that program.
    local at
    for ((at = 2; at < COMP_CWORD; at++)); do
      case ${COMP_WORDS[at]} in
        --) ((at++)); break ;;
        --vendors | --name | --profile | --gpu | --keys | --present-as | --report | --log) ((at++)) ;;
        -*) ;;
        *) break ;;
      esac
    done
    if ((at < COMP_CWORD)) || [[ $before == -- ]]; then
      if declare -F _command_offset > /dev/null; then
        _command_offset "$at"
      else
        mapfile -t COMPREPLY < <(compgen -c -f -- "$word")
      fi
      return
    fi
  fi

  case $before in
    --vendors) _grus_vendors "$word"; return ;;
    --vendors-dir | --keys | keys) mapfile -t COMPREPLY < <(compgen -d -- "$word"); return ;;
    --report | --audit | --config | --profile | --trace | --output | -o | restore) mapfile -t COMPREPLY < <(compgen -f -- "$word"); return ;;
    --to | drain) mapfile -t COMPREPLY < <(compgen -W "local unix: tcp:" -- "$word"); return ;;
    profile) mapfile -t COMPREPLY < <(compgen -W "make --help" -- "$word"); return ;;
    vm) mapfile -t COMPREPLY < <(compgen -W "list migrate attach-gpu detach-gpu hook --help" -- "$word"); return ;;
    --present-as) mapfile -t COMPREPLY < <(compgen -W "gpu cpu accelerator" -- "$word"); return ;;
    --fingerprint) mapfile -t COMPREPLY < <(compgen -W "xxh3 device system xor256" -- "$word"); return ;;
    --sample) mapfile -t COMPREPLY < <(compgen -W "0 1 2 4" -- "$word"); return ;;
    --sample-at) mapfile -t COMPREPLY < <(compgen -W "head tail uniform" -- "$word"); return ;;
    --log) mapfile -t COMPREPLY < <(compgen -W "error warn info debug" -- "$word"); return ;;
  esac

  options="$(_grus_options "$subcommand" "${COMP_WORDS[2]}")"
  if [[ $word != -* && $subcommand =~ ^(move|suspend|resume|checkpoint|restore|why)$ ]]; then
    _grus_sessions "$word"
  elif [[ $word != -* && $subcommand == profile ]]; then
    mapfile -t COMPREPLY < <(compgen -W "local unix: tcp:" -- "$word")
  elif [[ $word == -* || $subcommand != run ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -c -f -- "$word")
  fi
}

complete -o filenames -F _grus grus
