#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# On UCI's Adult the program reaches 84 % of the rows that it has not seen, on one rank and on two.
#   adult_test.sh PROGRAM FOLDER [PEAL_RUN]     FOLDER: where adult/ is, if PEAL_TEST_DATA does not say
# Skips (77) where the data is not there.
set -euo pipefail

program=${1:?usage: adult_test.sh PROGRAM FOLDER [PEAL_RUN]} data=${PEAL_TEST_DATA:-${2:?}}/adult launcher=${3-}
if [[ ! -f $data/adult.data || ! -f $data/adult.test ]]; then
  echo "SKIPPED: no Adult in $data; set PEAL_TEST_DATA to a folder with adult/ in it"
  exit 77
fi
check() {
  "$@" --data "$data" --num_train_epochs 2 | tee log
  awk '/eval_accuracy/ { sub(/.*.eval_accuracy.: /, ""); found = $1 + 0 } END { exit !(found >= 0.84) }' log ||
    { echo 'FAILED: less than 84.0 % of the test file'; exit 1; }
}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
check "$program" --per_device_train_batch_size 64
if [[ -n $launcher ]]; then check "$launcher" -n 2 "$program" --per_device_train_batch_size 32; fi
