#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# calibrate measures a machine, compares it with real collectives, and peal-schedule reads its file.
# Arguments: peal-mpirun, calibrate, peal-schedule, the number of ranks.
set -euo pipefail

run=$1 calibrate=$2 schedule=$3 ranks=$4
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

"$run" -n "$ranks" "$calibrate" --check --most 1 --sweeps 1 --json machine.json >table.txt
grep -q "^ *$ranks *262144 circulant  " table.txt || { echo "no line for circulant:"; cat table.txt; exit 1; }
grep -q "^$ranks ranks: simulator against measurement, median error" table.txt || { cat table.txt; exit 1; }
"$schedule" compare all_reduce ring circulant --ranks "$ranks" --machine machine.json >compare.txt
grep -q '^fastest: ' compare.txt || { cat compare.txt; exit 1; }

if "$run" -n "$ranks" "$calibrate" --most 1 --sweeps 1 --json /no/such/folder/machine.json >out.txt 2>&1; then
  echo "a file that cannot be written is no error"
  exit 1
fi
grep -q 'cannot write /no/such/folder/machine.json' out.txt || { cat out.txt; exit 1; }
if "$calibrate" >out.txt 2>&1; then
  echo "one rank is no error"
  exit 1
fi
grep -q 'expected two ranks or more, got 1; start it with mpirun -n 2' out.txt || { cat out.txt; exit 1; }
