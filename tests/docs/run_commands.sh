#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs what README.md, docs/running.md and docs/HACKING.md show in their ```sh blocks and a build at hand can do in a
# moment: programs of the build, under peal-mpirun or not (a training for one short epoch, measurements of steps once), and
# the checks of style. What installs, configures, builds or tests is run by tests/run.sh and .ci/run themselves; of it only
# the programs of the tree must be there.
#   run_commands.sh ROOT BUILD     the build takes the place of build/release
set -euo pipefail

usage='usage: run_commands.sh ROOT BUILD'
root=$(realpath "${1:?$usage}") build=$(realpath "${2:?$usage}")
scratch=$(mktemp -d)
export PEAL_CONFIG=none  # whose machine this is may have a config of his own
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/build"
ln -s "$root"/{.ci,.clang-format,autograd,bench,comm,data,docs,examples,launch,nn,peal.h,tests,README.md} "$scratch"
ln -s "$build" "$scratch/build/release"
cd "$scratch"

run=0 left=0 failures=0
while IFS= read -r line; do
  case $line in
    *' docs/pictures') line=${line/docs\/pictures/pictures} && mkdir pictures ;;
    *'/ddp_step '*' --pairs 3 '*) line=${line/--pairs 3/--pairs 1 --steps 1} ;;
    *'/scaling '*' --turns 2 '*) line=${line/--turns 2/--turns 1 --steps 2} ;;
    *'/learner_step '*) line=$(sed 's/ --turns [0-9]*/ --turns 1/; s/ --batches [0-9]*/ --batches 2/' <<<"$line") ;;
    *05_train_mnist\ *) line=$(sed 's/ --num_train_epochs [0-9]*//' <<<"$line")' --num_train_epochs 1 --train-samples 128' ;;
  esac
  if [[ $line =~ ^([A-Z_]+=[^ ]+ )*(launch/tools/peal-mpirun|build/release/([^b]|bin/)|tests/style/) ]]; then
    run=$((run + 1))
    bash -c "$line" >output 2>&1 </dev/null || {
      printf 'FAILED: %s\n' "$line" && cat output
      failures=$((failures + 1))
    }
  else
    left=$((left + 1))
    program=${line%% *}
    [[ $program != */* || -x $program ]] || {
      echo "FAILED: $line: there is no program $program"
      failures=$((failures + 1))
    }
  fi
done < <(awk '/^```sh$/ {on = 1; next} /^```/ {on = 0} on' README.md docs/running.md docs/HACKING.md | sed 's/ *#.*//; /^ *$/d')

echo "$run commands were run, $left left to others, $failures failures"
[[ $run -gt 0 && $failures -eq 0 ]]
