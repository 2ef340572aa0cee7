#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A training that is stopped and taken up again ends as one that was not: the checkpoints are equal to the last bit.
#   resume_test.sh TRAINER [PEAL_RUN]     with PEAL_RUN also on two ranks
set -euo pipefail

trainer=${1:?usage: resume_test.sh TRAINER [PEAL_RUN]} launcher=${2-}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export PEAL_LOG=warning

# same OPTION... -- COMMAND...: of the training program, with these options.
same() {
  local options=()
  while [[ $1 != -- ]]; do
    options+=("$1")
    shift
  done
  shift
  local train=("$@" "$trainer" --data synthetic --train-samples 120 --batch-size 16 "${options[@]}")
  "${train[@]}" --epochs 3 --save whole >whole.log 2>&1 || { cat whole.log; exit 1; }
  "${train[@]}" --epochs 1 --save parts >parts.log 2>&1 || { cat parts.log; exit 1; }
  ! cmp -s whole parts || { echo 'FAILED: two more epochs changed nothing'; exit 1; }
  "${train[@]}" --epochs 3 --resume parts --save parts >>parts.log 2>&1 || { cat parts.log; exit 1; }
  cmp whole parts || { echo "FAILED: ${train[*]}: goes on otherwise"; exit 1; }
  diff <(grep -o 'epoch 3: loss [0-9.]*, test accuracy [0-9.]*' whole.log) \
    <(grep -o 'epoch 3: loss [0-9.]*, test accuracy [0-9.]*' parts.log)
}
same --
status=0
"$trainer" --data synthetic --train-samples 136 --batch-size 16 --epochs 4 --resume parts >other.log 2>&1 || status=$?
if [[ $status -ne 1 ]] ||
  ! grep -qF 'parts: it was saved with train_samples 120, and this run has 136; go on with the same' other.log; then
  echo "FAILED: a run of other data is taken up: exit status $status"
  cat other.log
  exit 1
fi

# A run that saves after each step into a folder, killed twelve times at most, goes on from the newest checkpoint that is
# whole each time, and ends as the one that was not.
rm -rf run
for ((round = 0; round <= 12; ++round)); do
  status=0 limit=()
  if [[ $round -lt 12 ]]; then
    limit=(timeout --signal=KILL "$(awk -v r=$round 'BEGIN { srand(r); print 0.5 + 0.1 * r + rand() / 2 }')")
  fi
  PEAL_LOG=info "${limit[@]}" "$trainer" --data synthetic --train-samples 120 --batch-size 16 --epochs 3 --save run \
    --resume auto --save-every 1 --keep 2 >killed.log 2>&1 || status=$?
  ! grep -q 'passed over' killed.log || { cat killed.log; echo 'FAILED: a killed save left a checkpoint half'; exit 1; }
  [[ $status -eq 137 ]] || break
done
[[ $status -eq 0 ]] || { cat killed.log; echo "FAILED: killed $round times, exit status $status"; exit 1; }
cmp whole "$(ls run/*.safetensors | sort -V | tail -n 1)" || { echo 'FAILED: a killed run ends otherwise'; exit 1; }
"$trainer" --data synthetic --train-samples 120 --batch-size 16 --epochs 3 --save run --resume auto >ended.log 2>&1 &&
  grep -q 'all 3 epochs are done' ended.log || { cat ended.log; echo 'FAILED: a run that has ended is no error'; exit 1; }
same --precision f16 --seed 5 --
if [[ -n $launcher ]]; then same -- "$launcher" -n 2; fi
echo 'resumed trainings end as whole ones'
