#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ranks that are started by RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT alone, as torchrun and scripts do: they meet, their
# sums are right, mismatches and deaths end all of them, and nothing remains.
#   torchrun_test.sh PROGRAM (tests/mpi/endings.cpp) [PEAL_RUN]
set -euo pipefail

program=${1:?usage: torchrun_test.sh PROGRAM [PEAL_RUN]}
peal_run=${2-}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export PEAL_LOG=warning OMP_NUM_THREADS=1 PEAL_TIMEOUT=${PEAL_TIMEOUT-30}
fail() { echo "torchrun_test: $*" >&2; cat "$folder"/* >&2; exit 1; }
# shellcheck source=tests/segments.sh
source "$(dirname "$0")/../segments.sh"

# shellcheck source=tests/launch/ports.sh
source "$(dirname "$0")/ports.sh"
# run RANKS ARGUMENTS...: the ranks' statuses, in order
run() {
  local ranks=$1 rank pids=()
  shift
  port=$(free_port)
  for ((rank = 0; rank < ranks; ++rank)); do
    RANK=$rank WORLD_SIZE=$ranks LOCAL_RANK=$rank LOCAL_WORLD_SIZE=$ranks MASTER_ADDR=${master-localhost} MASTER_PORT=$port \
      PEAL_NODE=${on_a_node:+node-$((rank / ${on_a_node:-1}))} timeout 60 "$program" "$@" >"$folder/$rank" 2>&1 &
    pids+=($!)
  done
  statuses=
  for rank in "${!pids[@]}"; do
    local status=0
    wait "${pids[rank]}" || status=$?
    [[ $status -ne 124 ]] || fail "rank $rank has not ended: $*"
    statuses+="$status "
  done
}

for ranks in 1 2 3 5; do
  run "$ranks" sums
  [[ $statuses =~ ^(0 )+$ ]] || fail "sums: $statuses"
  [[ $(cat "$folder/0") == "sums of $ranks ranks are right" ]] || fail "sums of $ranks"
done
# A host of another name is not looked up, for all ranks are on this one; torchrun's agent has the port.
master=no-such-host.invalid TORCHELASTIC_USE_AGENT_STORE=True TORCHELASTIC_RUN_ID=a run 2 sums
[[ $statuses == '0 0 ' ]] || fail "by an agent: $statuses"
PEAL_STORE_SECRET=of-theirs run 2 sums
[[ $statuses == '0 0 ' ]] || fail "with a secret: $statuses"
# A child by fork that leaves the program ends nothing of its parent's.
run 2 fork
[[ $statuses == '0 0 ' && $(cat "$folder/0" "$folder/1") == 'sums of 2 ranks are right' ]] || fail "fork: $statuses"

# Three ranks of a Slurm step whose srun speaks no PMI: by Slurm's variables, of a node that nobody looks up, and told by job
# and step from another one at their port, of which a rank comes first.
run_step() { # run_step JOB...: rank 0 of the first, then ranks 1 and 2 of each
  local job rank pid pids=()
  port=$(free_port)
  rm -f "$folder"/*
  for rank in 0 1 2; do
    for job in "$@"; do
      [[ $rank -gt 0 || $job == "$1" ]] || continue
      SLURM_JOB_ID=$job SLURM_STEP_ID=0 SLURM_PROCID=$rank SLURM_NTASKS=3 SLURM_STEP_NUM_TASKS=3 SLURM_LOCALID=$rank \
        SLURM_NODEID=0 SLURM_STEP_TASKS_PER_NODE=3 MASTER_ADDR=no-such-host.invalid MASTER_PORT=$port \
        PEAL_TIMEOUT=$([[ $job == "$1" ]] && echo 30 || echo 2) timeout 60 "$program" sums >"$folder/$job.$rank" 2>&1 &
      pids+=($!)
    done
  done
  statuses=
  for pid in "${pids[@]}"; do
    local status=0
    wait "$pid" || status=$?
    statuses+="$status "
  done
}
run_step 4711
[[ $statuses == '0 0 0 ' && $(cat "$folder"/*) == 'sums of 3 ranks are right' ]] || fail "srun without MPI: $statuses"
run_step 4711 4712
[[ $statuses == '0 0 1 0 1 ' ]] || fail "two steps at one port: $statuses"
rm -f "$folder"/*

# As if they were on several nodes: memory within, TCP between.
for on_a_node in 1 2; do
  PEAL_STORE_SECRET=of-theirs run 4 sums
  [[ $statuses =~ ^(0 )+$ ]] || fail "sums on nodes of $on_a_node: $statuses"
done
on_a_node=2 run 4 differ
[[ $statuses == '1 1 1 1 ' ]] || fail "differ on two nodes: $statuses"
# The others learn why, though nobody of its node waits for the one that fails.
on_a_node=1 run 2 throw
[[ $statuses == '1 1 ' ]] || fail "throw on two nodes: $statuses"
grep -q '\[rank 1\] no more samples' "$folder/0" || fail 'throw on two nodes: rank 0 was not told why'
on_a_node=1 run 3 interrupt
[[ $statuses == '1 1 1 ' ]] || fail "interrupt on three nodes: $statuses"
for rank in 0 1; do
  grep -q '\[rank 2\] no more samples' "$folder/$rank" || fail "interrupt on three nodes: rank $rank was not told why"
done
on_a_node=2 run 4 die 5000
[[ $statuses == '1 1 1 137 ' ]] || fail "die on two nodes: $statuses"
grep -Eq 'rank 3 \(.*(it is gone|has died)' "$folder/0" "$folder/1" || fail 'die on two nodes: nobody there named rank 3'
unset on_a_node

run 3 differ
[[ $statuses == '1 1 1 ' ]] || fail "differ: $statuses"
grep -q 'must make the same calls' "$folder"/* || fail 'differ: nobody named both calls'
for moment in 150 5000 20011; do
  run 3 die "$moment"
  [[ $statuses == '1 1 137 ' ]] || fail "die: $statuses"
  grep -q 'rank 2 (process [0-9]*) has died' "$folder"/* || fail 'die: nobody named rank 2'
done
[[ -z $(remaining_segments) ]] || fail "a segment remains: $(remaining_segments)"

# Two jobs at one port, whose ranks look alike: one that has come twice ends them all, wherever they then are. Rank 0 comes
# again once the others work: a rank 1 that came after its end would wait for another one.
for ranks in '0 1 1' '0 1 then 1' '0 1 then 0'; do
  port=$(free_port)
  rm -f "$folder"/*
  pids=()
  for rank in $ranks; do
    if [[ $rank == then ]]; then
      for ((look = 0; look < 1500; ++look)); do
        if grep -q 'sums of 2 ranks are right' "$folder/0"; then continue 2; fi
        sleep 0.02
      done
      fail "the ranks have not begun: $ranks"
    fi
    RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=$port \
      PEAL_TIMEOUT=50 timeout 60 "$program" die 55000000 >"$folder/${#pids[@]}" 2>&1 &
    pids+=($!)
  done
  statuses=
  for pid in "${pids[@]}"; do
    status=0
    wait "$pid" || status=$?
    statuses+="$status "
  done
  [[ $statuses == '1 1 1 ' ]] || fail "two jobs at one port: $statuses"
  grep -q "two processes are rank ${ranks: -1} of 2 at port $port" "$folder"/* || fail 'nobody named the port'
  grep -q 'PEAL_STORE_SECRET' "$folder"/* || fail 'nobody said how to tell the jobs apart'
done

refuses() { # refuses TEXT VARIABLES...
  local text=$1
  shift
  if env "$@" "$program" sums >"$folder/0" 2>&1; then fail "not refused: $*"; fi
  grep -qF "$text" "$folder/0" || fail "expected '$text'"
}
refuses 'MASTER_PORT but no MASTER_ADDR' RANK=0 WORLD_SIZE=2 MASTER_PORT=5
refuses "MASTER_PORT is '65536', expected a port" RANK=0 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=65536
PEAL_TIMEOUT=1 refuses 'waited 1 s (PEAL_TIMEOUT)' RANK=0 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT="$(free_port)"

# A script under a launcher of MPI's, which sets the variables as well: MPI's word counts, as between nodes.
if [[ -n $peal_run ]]; then
  # shellcheck disable=SC2016
  timeout 60 "$peal_run" -n 2 bash -c 'RANK=$PMIX_RANK WORLD_SIZE=2 MASTER_ADDR=no-such-host.invalid MASTER_PORT=20000 \
    exec env -u OMPI_COMM_WORLD_RANK -u OMPI_COMM_WORLD_SIZE -u OMPI_COMM_WORLD_LOCAL_RANK -u OMPI_COMM_WORLD_LOCAL_SIZE \
    "$0" sums' "$program" >"$folder/0" 2>&1 || fail 'the variables under a launcher of MPI'
  grep -q 'sums of 2 ranks are right' "$folder/0" || fail 'sums under a launcher of MPI'
fi
echo 'ranks meet without MPI'
