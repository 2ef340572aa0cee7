#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# On UCI's Adult the tabular Learner reaches 84 % of the rows that it has not seen, on one rank and on two, and the model
# that it exports says the same in another process, of one rank or of two.
#   learner_table_test.sh PROGRAM FOLDER [PEAL_RUN]     FOLDER: where adult/ is, if PEAL_TEST_DATA does not say
# Skips (77) where the data is not there.
set -euo pipefail

program=${1:?usage: learner_table_test.sh PROGRAM FOLDER [PEAL_RUN]} data=${PEAL_TEST_DATA:-${2:?}}/adult launcher=${3-}
if [[ ! -f $data/adult.data || ! -f $data/adult.test ]]; then
  echo "SKIPPED: no Adult in $data; set PEAL_TEST_DATA to a folder with adult/ in it"
  exit 77
fi
failed() { echo "FAILED: $1"; cat log; exit 1; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export PEAL_PROGRESS=none

# Trains by the command, and judges what it exports by each of the others.
check() {
  "$@" --data "$data" --epochs 2 --export model >log
  local share
  share=$(awk '/^1 +0\./ { print $4 }' log)  # the row of the second epoch: the accuracy
  awk -v share="$share" 'BEGIN { exit !(share >= 0.84) }' || failed "accuracy $share, less than 0.84"
  share=$(awk -v share="$share" 'BEGIN { printf "accuracy %.2f %%", 100 * share }')
  for by in "${judges[@]}"; do
    $by "$program" --load model --predict "$data/adult.test" >log
    grep -q "$share" log || failed "the model that was exported says otherwise (by '$by'): expected $share"
  done
}
judges=(env)
[[ -z $launcher ]] || judges+=("$launcher -n 2")
check "$program" --batch-size 64
if [[ -n $launcher ]]; then check "$launcher" -n 2 "$program" --batch-size 32; fi
if "$program" --load model >log 2>&1; then failed 'a model without rows is no error'; fi
grep -q 'name a folder to learn from' log || failed 'it is not said what is missing'
echo 'a table is learnt, exported and judged'
