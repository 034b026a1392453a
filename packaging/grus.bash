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

_grus() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} subcommand=${COMP_WORDS[1]}
  local options
  if ((COMP_CWORD == 1)); then
    mapfile -t COMPREPLY < <(compgen -W "run info serve ps keys bench enable disable --help --version" -- "$word")
    return
  fi

  if [[ $subcommand == run ]]; then
    # From the program on, complete as for that program.
    local at
    for ((at = 2; at < COMP_CWORD; at++)); do
      case ${COMP_WORDS[at]} in
        --) ((at++)); break ;;
        --vendors | --gpu | --keys | --present-as | --report | --log) ((at++)) ;;
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
    --report | --audit | --config) mapfile -t COMPREPLY < <(compgen -f -- "$word"); return ;;
    --present-as) mapfile -t COMPREPLY < <(compgen -W "gpu cpu accelerator" -- "$word"); return ;;
    --log) mapfile -t COMPREPLY < <(compgen -W "error warn info debug" -- "$word"); return ;;
  esac

  case $subcommand in
    run) options="--vendors --gpu --keys --one-platform --present-as --objects --json --report --log --help --" ;;
    info) options="--json --vendors --gpu --keys --help" ;;
    serve) options="--listen --vendors --device --user --sessions --memory --grace --drain --audit --no-sandbox --keys --tls
                    --config --print-config --help" ;;
    ps) options="--gpu --interval --json --help" ;;
    keys) options="--host --client --days --token --force --help" ;;
    enable | disable) options="--dry-run --vendors-dir --help" ;;
  esac
  if [[ $word == -* || $subcommand != run ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -c -f -- "$word")
  fi
}

complete -o filenames -F _grus grus
