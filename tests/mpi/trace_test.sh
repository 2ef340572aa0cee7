#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# PEAL_TRACE over MPI: three ranks leave a file each, peal-schedule draws them, and a folder that cannot be written is an
# error before anything runs. Arguments: peal-mpirun, a program of some collectives, peal-schedule, the tests of MPI.
set -euo pipefail

run=$1 program=$2 schedule=$3 tests=$4
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

says() { # says FILE TEXT
  grep -qF -- "$2" "$1" || { echo "expected '$2':"; cat "$1"; exit 1; }
}

PEAL_ALGO=all_reduce=ring PEAL_TRACE="$folder/a trace" "$run" -n 3 "$program" >out.txt
[[ $(cat "a trace"/rank-{0,1,2}.trace | grep -c '^end$') -eq 3 ]] || { ls -l "a trace"; exit 1; }
"$schedule" trace "a trace" --trace out.json >list.txt
says list.txt '3 ranks, '
says list.txt 'all_reduce #'
if grep WARNING list.txt; then exit 1; fi
number=$(sed -nE 's/^ *([0-9]+) ring .* all_reduce #.*/\1/p' list.txt | head -n 1)
"$schedule" trace "a trace" --operation "$number" --draw out.svg --trace one.json >one.txt
says one.txt ' by ring, 3 ranks: model '
says out.svg '>measured</text>'
says one.json 'rank 2 model'
if command -v python3 >/dev/null; then
  python3 -c 'import json; json.load(open("out.json")); json.load(open("one.json"))'
fi

# The bounds of the clocks hold 0: the ranks of one machine read one clock.
awk '$1 == "bounds" && ++n && !($3 <= 0 && $4 >= 0) {bad = 1} END {exit bad || n != 4}' "a trace"/*.trace ||
  { grep bounds "a trace"/*.trace; exit 1; }

if PEAL_TRACE="$folder/out.txt/sub" "$run" -n 3 "$program" >refused.txt 2>&1; then
  echo 'a folder that cannot be is no error'
  exit 1
fi
says refused.txt "PEAL_TRACE: cannot write $folder/out.txt/sub/rank-0.trace: Not a directory"

# A second group of all ranks is not recorded, and leaves the first one's files readable.
PEAL_TRACE="$folder/two" "$run" -n 2 "$tests" --test-case='messages*' >out.txt
"$schedule" trace two >list.txt
says list.txt '2 ranks, '

# A rank that is alone has no collectives.
PEAL_TRACE="$folder/one" "$run" -n 1 "$program" >out.txt
if "$schedule" trace one --draw one.svg >list.txt 2>&1; then
  echo 'a drawing of no collective is no error'
  exit 1
fi
says list.txt 'no collective in this trace'
