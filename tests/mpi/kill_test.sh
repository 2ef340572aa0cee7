#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# kill -9 of one rank in mid epoch, under plain mpirun, at random moments: the survivors' error names the rank, the job
# ends non-zero within 3 s, and no process remains.
#   kill_test.sh TRAINER [TIMES [RANKS [SEED]]]
set -euo pipefail

trainer=$1 times=${2:-20} ranks=${3:-2} seed=${4:-$RANDOM}
RANDOM=$seed
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
log=$(mktemp)
job=''
trap 'if [[ -n $job ]]; then kill "$job" 2>/dev/null || true; fi; rm -f "$log"' EXIT
echo "seed $seed"

fail() { echo "kill_test: run $run: $*" >&2; cat "$log" >&2; exit 1; }

# The ranks of the job, which are children of its mpirun.
ranks_of() { cat /proc/"$1"/task/*/children | tr ' ' '\n' | grep .; }

# A zombie has ended: it waits for its parent, which may be a container's lazy init.
running() { [[ -r /proc/$1/stat && $(sed 's/.*) //; s/ .*//' "/proc/$1/stat" 2>/dev/null) != Z ]]; }

worst=0
for ((run = 1; run <= times; ++run)); do
  : >"$log"  # here, not by the job: else the first look could find the last run's lines
  mpirun --oversubscribe -n "$ranks" "$trainer" --data synthetic --train-samples 4000 --num_train_epochs 1000 >>"$log" 2>&1 &
  job=$!
  for ((wait = 0; wait < 300; ++wait)); do
    grep -q 'first training step' "$log" && break
    kill -0 "$job" 2>/dev/null || fail "the job ended before its first step"
    sleep 0.1
  done
  sleep "0.$((RANDOM % 10))$((RANDOM % 10))"
  mapfile -t pids < <(ranks_of "$job")
  [[ ${#pids[@]} -eq $ranks ]] || fail "expected $ranks ranks, found ${#pids[@]}"
  victim=${pids[RANDOM % ranks]}
  # /proc knows which rank that is.
  number=$(tr '\0' '\n' <"/proc/$victim/environ" | sed -n 's/^OMPI_COMM_WORLD_RANK=//p')
  start=$(date +%s%N)
  kill -9 "$victim"
  status=0
  wait "$job" || status=$?
  spent=$((($(date +%s%N) - start) / 1000000))
  ((spent > worst)) && worst=$spent
  [[ $status -ne 0 ]] || fail "the job ended with 0"
  [[ $spent -le 3000 ]] || fail "the job took $spent ms to end"
  grep -q "rank $number (process $victim) has died" "$log" || fail "no survivor named rank $number"
  for pid in "${pids[@]}"; do
    running "$pid" && fail "process $pid remains"
  done
  echo "run $run: rank $number killed, exit status $status after $spent ms"
done
echo "$times of $times: the survivors named the rank; the slowest job ended after $worst ms"
