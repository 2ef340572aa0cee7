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
segments() { find /dev/shm -maxdepth 1 -name 'peal-*' | sort; }
before=$(segments)

# Below those that the system gives to who asks for any.
free_port() { echo $((20000 + RANDOM % 12000)); }
# run RANKS ARGUMENTS...: the ranks' statuses, in order
run() {
  local ranks=$1 rank pids=()
  shift
  port=$(free_port)
  for ((rank = 0; rank < ranks; ++rank)); do
    RANK=$rank WORLD_SIZE=$ranks LOCAL_RANK=$rank LOCAL_WORLD_SIZE=$ranks MASTER_ADDR=${master-localhost} MASTER_PORT=$port \
      timeout 60 "$program" "$@" >"$folder/$rank" 2>&1 &
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

run 3 differ
[[ $statuses == '1 1 1 ' ]] || fail "differ: $statuses"
grep -q 'must make the same calls' "$folder"/* || fail 'differ: nobody named both calls'
for moment in 150 5000 20011; do
  run 3 die "$moment"
  [[ $statuses == '1 1 137 ' ]] || fail "die: $statuses"
  grep -q 'rank 2 (process [0-9]*) has died' "$folder"/* || fail 'die: nobody named rank 2'
done
[[ $(comm -13 <(echo "$before") <(segments)) == '' ]] || fail 'a segment remains'

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
