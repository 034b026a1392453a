#!/bin/bash
# Everything that needs a GPU, in one go: what the card is, what Grus sees, the GPU tests, what calls cost there through
# Grus and through a server, moves, tenants that share it, and the workloads.
# Needs no network and installs nothing.
set -u

usage() {
  cat <<'END'
usage: bench/gpu.sh [--prebuilt] [--native-only] [--quick] [--only PART] [--platform PART]
                    [--minutes N] [--out FOLDER]

  --prebuilt       use build/bin and build/lib as they are; otherwise make builds them first
  --native-only    leave Grus out: native against native, to see how far two equal runs differ here
  --quick          a short overhead table that decides nothing
  --only PART      tests, overhead, served, sessions, moves, fingerprints, tenants or workloads; default all
  --platform PART  part of the platform's name; default NVIDIA if its driver is there, else any
  --minutes N      end after about N minutes (default 20)
  --out FOLDER     put the JSON files there (default bench/results)

exit status: 0 all well, 1 a test failed or a limit was missed, 2 couldn't run, 3 some interval was too wide to tell
END
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd) || exit 2
export BENCH_COMMAND="bench/gpu.sh${*:+ $*}"
prebuilt=no native_only=no quick=no only='' platform='' minutes=20 out=$root/bench/results
while [ $# -gt 0 ]; do
  case $1 in
    --prebuilt) prebuilt=yes ;;
    --native-only) native_only=yes ;;
    --quick) quick=yes ;;
    --only | --platform | --minutes | --out)
      [ $# -ge 2 ] || { usage >&2; exit 2; }
      case $1 in --only) only=$2 ;; --platform) platform=$2 ;; --minutes) minutes=$2 ;; --out) out=$2 ;; esac
      shift ;;
    -h | --help) usage; exit 0 ;;
    *) echo "gpu.sh: unknown option $1" >&2; usage >&2; exit 2 ;;
  esac
  shift
done
case $only in
  '' | tests | overhead | served | sessions | moves | fingerprints | tenants | workloads) ;;
  *) echo "gpu.sh: --only takes tests, overhead, served, sessions, moves, fingerprints, tenants or workloads" >&2; exit 2 ;;
esac
case $minutes in '' | *[!0-9]* | 0) echo "gpu.sh: --minutes takes a whole number of minutes" >&2; exit 2 ;; esac

mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 2
scratch=$(mktemp -d) && chmod 755 "$scratch" || exit 2 # other users' servers read the drivers' names there
trap 'rm -rf "$scratch"' EXIT
cd "$root" || exit 2
ends=$((SECONDS + minutes * 60))
status=0

left() { echo $((ends > SECONDS ? ends - SECONDS : 0)); }
wanted() { [ -z "$only" ] || [ "$only" = "$1" ]; }
title() { printf '\n== %s\n' "$*"; }
worst() { # a missed limit outweighs an unclear one
  if [ "$1" -ne 0 ] && { [ "$status" -eq 0 ] || [ "$status" -eq 3 ]; }; then status=$1; fi
}

# Where a library is: in the loader's cache, or where drivers and toolkits put it without telling the loader.
library() {
  local found
  found=$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | awk -v name="$1" '$1 == name { print $NF; exit }')
  [ -n "$found" ] && { echo "$found"; return; }
  local folders
  IFS=: read -ra folders <<<"${LD_LIBRARY_PATH:-}"
  folders+=("$root/build/lib" /usr/local/nvidia/lib{64,} /usr/local/cuda/lib64 /usr/lib/{x86_64,aarch64}-linux-gnu /usr/lib64)
  for found in "${folders[@]}"; do
    [ -n "$found" ] && [ -e "$found/$1" ] && { echo "$found/$1"; return; }
  done
  return 1
}

if [ $prebuilt = no ]; then
  title build
  if ! make; then echo "gpu.sh: the build failed" >&2; exit 2; fi
fi
needed=(overhead)
[ $native_only = yes ] || needed+=(grus)
for name in "${needed[@]}"; do
  [ -x "build/bin/$name" ] || { echo "gpu.sh: build/bin/$name isn't there: leave out --prebuilt" >&2; exit 2; }
done

if ! loader=$(library libOpenCL.so.1); then
  echo "gpu.sh: no OpenCL loader (libOpenCL.so.1): install one, or put one into build/lib" >&2
  exit 2
fi
LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$(dirname "$loader")
export LD_LIBRARY_PATH
# A folder of our own: the system's may hold other drivers, or Grus itself.
vendors=$scratch/vendors
mkdir "$vendors" || exit 2
if driver=$(library libnvidia-opencl.so.1); then
  case $(PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null) in
    *libnvidia-opencl.so.1*) echo libnvidia-opencl.so.1 >"$vendors/nvidia.icd" ;;
    *) echo "$driver" >"$vendors/nvidia.icd" ;;
  esac
  LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$(dirname "$driver")
  platform=${platform:-NVIDIA}
  name=nvidia
else
  for icd in /etc/OpenCL/vendors/*.icd; do
    [ -r "$icd" ] && ! grep -q libgrus "$icd" && cp "$icd" "$vendors"
  done
  if [ -z "$(ls "$vendors")" ]; then
    echo "gpu.sh: neither NVIDIA's OpenCL driver nor any in /etc/OpenCL/vendors is there" >&2
    exit 2
  fi
  name=other
fi
export GRUS_VENDORS=$vendors

title "card and driver"
if command -v nvidia-smi >/dev/null; then
  nvidia-smi --query-gpu=name,driver_version,memory.total,pcie.link.gen.max,pcie.link.width.max --format=csv
elif command -v clinfo >/dev/null; then
  OCL_ICD_VENDORS=$vendors/ clinfo -l
else
  echo "(neither nvidia-smi nor clinfo is there)"
fi
echo "$(nproc) cores, $(uname -sr), loader $loader"

if [ $native_only = no ]; then
  title "grus info"
  timeout 120 build/bin/grus info || { echo "gpu.sh: grus info failed" >&2; worst 1; }

  for test in build/bin/tests/gpu_*; do
    { wanted tests && [ -x "$test" ]; } || continue
    title "$(basename "$test")"
    # Half of what is left at most: the table must get its share.
    timeout $(($(left) / 2 + 1)) build/bin/grus run --vendors "$vendors" -- "$test"
    result=$?
    [ $result -eq 124 ] && echo "gpu.sh: $(basename "$test") ran out of time" >&2
    [ $result -eq 0 ] || { echo "FAILED: $(basename "$test") ($result)"; worst 1; }
  done
  if wanted tests; then
    title "what sessions can see of others' memory"
    GRUS_BUILD=$root/build GRUS_SOURCE=$root GRUS_SANITIZE='' timeout 300 python3 bench/tested.py tests/remote/isolation_test.py \
      --device "${platform:-$name}" --json "$out/isolation-$name.json"
    worst $?
  fi
fi

choice=(--vendors "$vendors")
[ -n "$platform" ] && choice+=(--platform "$platform")
[ $quick = yes ] && choice+=(--quick)

# measure NAME MINUTES COMMAND...: ends by itself within the minutes; the timeout is for a driver that hangs.
measure() {
  title "$1"
  if [ "$2" -lt 1 ]; then
    echo "gpu.sh: no time is left for it" >&2
    worst 2
    return
  fi
  PYTHONUNBUFFERED=1 timeout $(($2 * 60 + 240)) python3 "${@:3}" "${choice[@]}" --minutes "$2"
  worst $?
}

if [ $native_only = yes ]; then
  measure overhead $(($(left) / 60)) bench/overhead_run.py --native-only --json "$out/overhead-$name.json"
else
  if wanted overhead; then
    share=$([ -n "$only" ] && echo 60 || echo 180)
    measure overhead $(($(left) / share)) bench/overhead_run.py --json "$out/overhead-$name.json"
  fi
  if wanted served; then
    share=$([ -n "$only" ] && echo 60 || echo 120)
    measure served $(($(left) / share)) bench/overhead_run.py --mode grus --mode unix --mode tcp --json "$out/served-$name.json"
  fi
  if wanted sessions; then
    title "sessions"
    timeout 300 python3 bench/sessions.py --sessions 8 --rounds 6 --pause 2 --vendors "$vendors" --json "$out/sessions-$name.json"
    worst $?
  fi
  if wanted moves; then
    title "moves: tests"
    GRUS_BUILD=$root/build GRUS_SOURCE=$root GPU_PLATFORM=$platform timeout 600 python3 tests/moves/gpu_test.py
    worst $?
    title "moves: stops"
    PYTHONUNBUFFERED=1 timeout 600 python3 bench/moves.py --vendors "$vendors" --platform "$platform" --rounds 3 \
      --mib 64 --mib 1024 --mib 32768 --json "$out/moves-$name.json"
    worst $?
    for part in scattered suspended; do
      title "moves: $part"
      PYTHONUNBUFFERED=1 timeout 600 python3 bench/moves.py --part $part --vendors "$vendors" --platform "$platform" \
        --rounds 3 --mib 32768 --json "$out/moves-$part-$name.json"
      worst $?
    done
  fi
  if wanted fingerprints; then
    title "fingerprints"
    short=()
    [ $quick = yes ] && short=(--quick)
    PYTHONUNBUFFERED=1 timeout 900 python3 bench/paper.py gmig --vendors "$vendors" --platform "$platform" "${short[@]}" \
      --json "$out/paper-gmig-$name.json"
    worst $?
  fi
  if wanted tenants; then
    title "tenants"
    short=()
    [ $quick = yes ] && short=(--seconds 1 --turns 1 --only shares --only alone)
    PYTHONUNBUFFERED=1 timeout 900 python3 bench/tenants.py --vendors "$vendors" --device "${platform:-$name}" "${short[@]}" \
      --json "$out/tenants-$name.json"
    worst $?
  fi
  if wanted workloads; then
    measure workloads $(($(left) / 60)) bench/run --json "$out/workloads-$name.json"
  fi
fi
title "done in $((SECONDS / 60)) min $((SECONDS % 60)) s: $([ "$status" -eq 0 ] && echo "all well" || echo "status $status")"
exit "$status"
