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

# newest FOLDER: its newest checkpoint.
newest() { find "$1" -name '*.safetensors' | sort -V | tail -n 1; }

# same OPTION... -- COMMAND...: of the training program, with these options.
same() {
  local options=()
  while [[ $1 != -- ]]; do
    options+=("$1")
    shift
  done
  shift
  local train=("$@" "$trainer" --data synthetic --train-samples 120 --per_device_train_batch_size 16 --save_strategy epoch
    "${options[@]}")
  rm -rf whole parts
  "${train[@]}" --num_train_epochs 3 --output_dir whole >whole.log 2>&1 || { cat whole.log; exit 1; }
  "${train[@]}" --num_train_epochs 1 --output_dir parts >parts.log 2>&1 || { cat parts.log; exit 1; }
  ! cmp -s "$(newest whole)" "$(newest parts)" || { echo 'FAILED: two more epochs changed nothing'; exit 1; }
  "${train[@]}" --num_train_epochs 3 --output_dir parts --resume_from_checkpoint true >>parts.log 2>&1 ||
    { cat parts.log; exit 1; }
  cmp "$(newest whole)" "$(newest parts)" || { echo "FAILED: ${train[*]}: goes on otherwise"; exit 1; }
  diff <(grep -oE "'(loss|eval_loss|eval_accuracy)': [0-9.]+" whole.log | tail -n 3) \
    <(grep -oE "'(loss|eval_loss|eval_accuracy)': [0-9.]+" parts.log | tail -n 3)
}
same --
status=0
"$trainer" --data synthetic --train-samples 136 --per_device_train_batch_size 16 --num_train_epochs 4 \
  --resume_from_checkpoint parts >other.log 2>&1 || status=$?
if [[ $status -ne 1 ]] ||
  ! grep -qF ': it was saved with train_samples 120, and this run has 136; go on with the same' other.log; then
  echo "FAILED: a run of other data is taken up: exit status $status"
  cat other.log
  exit 1
fi

# A run that saves after each step into a folder, killed twelve times at most, goes on from the newest checkpoint that is
# whole each time, and ends as the one that was not.
by_steps=("$trainer" --data synthetic --train-samples 120 --per_device_train_batch_size 16 --num_train_epochs 3
  --save_strategy steps --save_steps 1 --save_total_limit 2)
"${by_steps[@]}" --output_dir by_steps >whole.log 2>&1 || { cat whole.log; exit 1; }
for ((round = 0; round <= 12; ++round)); do
  status=0 limit=()
  if [[ $round -lt 12 ]]; then
    limit=(timeout --signal=KILL "$(awk -v r=$round 'BEGIN { srand(r); print 0.5 + 0.1 * r + rand() / 2 }')")
  fi
  PEAL_LOG=info "${limit[@]}" "${by_steps[@]}" --output_dir run --resume_from_checkpoint true >killed.log 2>&1 || status=$?
  ! grep -q 'passed over' killed.log || { cat killed.log; echo 'FAILED: a killed save left a checkpoint half'; exit 1; }
  [[ $status -eq 137 ]] || break
done
[[ $status -eq 0 ]] || { cat killed.log; echo "FAILED: killed $round times, exit status $status"; exit 1; }
cmp "$(newest by_steps)" "$(newest run)" || { echo 'FAILED: a killed run ends otherwise'; exit 1; }
"${by_steps[@]}" --output_dir run --resume_from_checkpoint true >ended.log 2>&1 &&
  grep -q 'all 24 steps are done' ended.log || { cat ended.log; echo 'FAILED: a run that has ended is no error'; exit 1; }
same --fp16 --seed 5 --
if [[ -n $launcher ]]; then same -- "$launcher" -n 2; fi
echo 'resumed trainings end as whole ones'
