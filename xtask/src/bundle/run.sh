#!/usr/bin/env bash
# Runs everything that wants a GPU, on a machine that has one and nothing of Rust:
#
#   run.sh [--dry-run] [STEP...]
#
# Each step's output goes to a file of its own in the folder $OUT (here: out), its exit status into $OUT/summary.txt. The script fails if a
# step does. With names of steps it runs these alone; info, verify, tests, bench, tune and sanitizer are their beginnings.
# --dry-run runs on the emulator, which is slow: small suites, a few tests, no sanitizer.
# TIME_LIMIT is how many seconds a step may take: 900 where nothing is said.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-$here/out}
limit=${TIME_LIMIT:-900}
dry=
if [ "${1:-}" = --dry-run ]; then dry=1; shift; fi
wanted=("$@")
mkdir -p "$out" || exit 1
out=$(cd "$out" && pwd)
summary=$out/summary.txt
: > "$summary" || exit 1
failed=0
ran=0

# What the tests ask for, where cargo is not there to build or to tell it.
export HOPPER_PROJ_TEST_DATA=$here/data
export HOPPER_PROJ_TEST_BINARY=$here/bin/hopper-proj
unset HOPPER_PROJ_PLAN
if [ "$dry" ]; then export HOPPER_PROJ_DEVICE=emulated; else export HOPPER_PROJ_DEVICE=cuda; fi

# note STATUS STEP [WHY]
note() { printf '%-10s %s%s\n' "$1" "$2" "${3:+: $3}" | tee -a "$summary"; }

is_wanted() {
  local name
  [ ${#wanted[@]} -eq 0 ] && return
  for name in "${wanted[@]}"; do [[ $1 == "$name"* ]] && return; done
  return 1
}

# step NAME COMMAND...
step() {
  local name=$1 status started=$SECONDS
  shift
  is_wanted "$name" || return 0
  timeout "$limit" "$@" > "$out/$name.txt" 2>&1
  status=$?
  ran=$((ran + 1))
  if [ $status -eq 0 ]; then
    note ok "$name" "$((SECONDS - started)) s"
  else
    failed=$((failed + 1))
    note "FAILED $status" "$name" "$((SECONDS - started)) s, see $name.txt"
    tail -n 5 "$out/$name.txt"
  fi
}

# leave_out STEP WHY
leave_out() { if is_wanted "$1"; then note "left out" "$1" "$2"; fi; }

cd "$here" || exit 1
program=bin/hopper-proj
step info "$program" info

if [ "$dry" ]; then
  step verify-small "$program" verify --suite small
  leave_out verify-muse "the emulator takes minutes for it"
else
  step verify-small "$program" verify --suite small
  step verify-muse "$program" verify --suite muse
fi

# Those that ask for a file or a program beside them, and those that are quick.
quick=" cli-cli host-device tests-floor tests-hostile tests-real_weights tests-seeds "
for test in bin/deps/*; do
  name=$(basename "$test")
  if [ -z "$dry" ] || [[ $quick == *" $name "* ]]; then
    step "tests-$name" "$test"
  else
    step "tests-$name-list" "$test" --list
  fi
done
if [ "$dry" ]; then leave_out tests "of most, only the list is asked for, which shows that they start"; fi

if [ "$dry" ]; then
  for mode in graph pdl chain; do
    step "bench-$mode" "$program" bench --suite small --mode $mode --csv "$out/bench-$mode.csv"
  done
  leave_out tune "times need a GPU"
  leave_out sanitizer "it needs a GPU"
else
  for mode in graph pdl chain; do
    step "bench-$mode" "$program" bench --suite muse --mode $mode --csv "$out/bench-$mode.csv" \
      --record "$out/record" --plot "$out/bench-$mode.svg" --peers peers.csv
  done
  step tune "$program" tune --suite muse --out "$out/measured.csv"
  step bench-tuned env HOPPER_PROJ_PLAN="$out/measured.csv" "$program" bench --suite muse --mode pdl --csv "$out/bench-tuned.csv"
  PATH=$PATH:/usr/local/cuda/bin
  if command -v compute-sanitizer > /dev/null; then
    for tool in memcheck racecheck synccheck; do
      step "sanitizer-$tool" compute-sanitizer --tool $tool --error-exitcode 9 "$program" verify --suite small
    done
  else
    leave_out sanitizer "compute-sanitizer is not installed"
  fi
fi

if [ $ran -eq 0 ]; then
  note "FAILED" "no step is called ${wanted[*]}"
  exit 2
fi
echo "$ran steps ran, $failed failed; what they said is in $out"
[ $failed -eq 0 ]
