#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A training under peal-run --max-restarts, of which a rank is killed again and again: it goes on each time from its newest
# checkpoint, and ends to the bit as one that was left alone.
set -euo pipefail
# shellcheck source=tests/launch/peal_run/frame.sh
source "$(dirname "$0")/frame.sh" "$@"
# shellcheck disable=SC2016
{
# Rank 1 ends three checkpoints after each of its first three starts, or soon after that; there are eight an epoch, and where
# that is seen too late they are tried to be more.
for epochs in 4 16 64; do
  rm -rf run whole
  train=("$program" --data synthetic --train-samples 240 --per_device_train_batch_size 16 --num_train_epochs "$epochs"
    --save_strategy steps --save_steps 1)
  ends 0 -n 2 "${train[@]}" --output_dir whole
  PEAL_LOG=info ends 0 -n 2 --max-restarts 3 bash -c '
    if [[ $RANK == 1 && $TORCHELASTIC_RESTART_COUNT -lt 3 ]]; then
      shopt -s nullglob
      files=(run/*.safetensors)
      enough=$((${#files[@]} + 3))
      { until files=(run/*.safetensors) && [[ ${#files[@]} -ge $enough ]]; do sleep 0.02; done; kill -KILL $$; } &
    fi
    exec "$@"' - "${train[@]}" --output_dir run --resume_from_checkpoint true
  [[ $(grep -cE 'rank 1 .* was ended by SIGKILL' err) -ne 3 ]] || break
done
[[ $(grep -cE 'rank 1 .* was ended by SIGKILL' err) -eq 3 ]] || failed 'rank 1 was not ended three times'
says 'starts again, 3 of 3, with 2 ranks'
# Each start after the first goes on from further than the one before it.
grep -oE 'going on after (step|epoch) [0-9]+.* of run/.*' err >resumed || failed 'no start goes on'
[[ $(grep -cE 'after (step|epoch) [1-9]' resumed) -eq 3 && $(wc -l <resumed) -eq 3 ]] || failed 'not each start goes on'
sed 's/.* of //' resumed >from
sort -V -u from | cmp - from || failed 'a start does not go on from where the one before it was'
newest() { find "$1" -name '*.safetensors' 2>/dev/null | sort -V | tail -n 1; }
cmp "$(newest whole)" "$(newest run)" || failed 'it ended otherwise'

# SIGTERM has it save once more, after a step, and end; a second one ends it at once.
for start in 1 2; do
  before=$(newest terminated) || true
  : >out  # which says so of another
  PEAL_LOG=info "$peal_run" -n 2 "$program" --data synthetic --train-samples 24000 --per_device_train_batch_size 16 \
    --num_train_epochs 40 --output_dir terminated --save_strategy epoch --resume_from_checkpoint true >out 2>err &
  job=$!
  until_true grep -q 'first training step done' out
  kill -TERM "$job"
  status=0
  wait "$job" || status=$?
  [[ $status -eq 143 ]] || failed "exit status $status, expected 143"
  says 'SIGTERM: ends after step'
  [[ $(newest terminated) != "$before" ]] || failed 'it has not saved'
  [[ $start -eq 1 ]] || says 'going on after step'
done
}
echo 'a training goes on'
