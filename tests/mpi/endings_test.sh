#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How a job over MPI ends: all sums are right and nothing is said; ranks that call different things are all told so; and
# when a rank is killed in the middle of collectives in shared memory, the others name it where their launcher lets them,
# none of them hangs, and nothing of peal remains in /dev/shm. One that stands still before MPI has begun is not waited for
# without an end. The MPI is the one whose mpirun is on PATH.
#   endings_test.sh PEAL_RUN PROGRAM RANKS [DEATHS]
set -euo pipefail

usage='usage: endings_test.sh PEAL_RUN PROGRAM RANKS [DEATHS]'
launcher=${1:?$usage} program=${2:?$usage} ranks=${3:?$usage} deaths=${4:-3}
last=$((ranks - 1))
version=$(mpirun --version 2>&1)
version=$(grep -m1 -i 'version\|mpi' <<<"$version" | tr -s ' ')
# Open MPI's launcher gives the others a second to say what they see; Hydra (MPICH, Intel MPI) kills them at once.
heard=false
[[ $version != *'Open MPI'* && $version != *OpenRTE* ]] || heard=true
log=$(mktemp)
trap 'rm -f "$log"' EXIT

fail() { echo "endings_test: $*" >&2; cat "$log" >&2; exit 1; }
# shellcheck source=tests/segments.sh
source "$(dirname "$0")/../segments.sh"
nothing_remains() { [[ -z $(remaining_segments) ]] || fail "it remains: $(remaining_segments)"; }
# run PROGRAM ARGUMENTS...: its status
run() {
  status=0
  timeout --foreground 60 "$launcher" -n "$ranks" "$@" >"$log" 2>&1 || status=$?
  [[ $status -ne 124 ]] || fail "it has not ended after 60 s: $*"
}

run "$program" sums
[[ $status -eq 0 && $(<"$log") == "sums of $ranks ranks are right" ]] || fail "sums: status $status"
nothing_remains

run "$program" differ
[[ $status -ne 0 ]] || fail 'differ: it ended with 0'
grep -q "(sum of 256 f32).*but rank .*(sum of 255 f32)\|(sum of 255 f32).*but rank .*(sum of 256 f32)" "$log" ||
  fail 'differ: nobody named both calls'
nothing_remains
echo "differ: $(grep -m1 'must make the same calls' "$log")"

# A rank that stands still before it comes to MPI: MPI itself would wait for it for ever.
# shellcheck disable=SC2016
PEAL_TIMEOUT=2 run sh -c 'test "${OMPI_COMM_WORLD_RANK-${PMI_RANK-}}" != 1 || kill -STOP $$; exec "$0" sums' "$program"
[[ $status -ne 0 ]] || fail 'stopped before MPI: the job ended with 0'
! $heard || grep -q 'MPI_Init_thread has not come back for 5 s (the least; PEAL_TIMEOUT is shorter)' "$log" || fail 'stopped before MPI: nobody said so'
nothing_remains
echo "stopped before MPI: $(grep -m1 'has not come back' "$log" || echo 'not said')"

for ((death = 1; death <= deaths; ++death)); do
  run "$program" die $((death * 7919 % 30011 + 100))
  [[ $status -ne 0 ]] || fail 'die: the job ended with 0'
  ! $heard || grep -q "rank $last (process [0-9]*) has died" "$log" || fail "die: nobody named rank $last"
  nothing_remains
done
echo "die: $(grep -m1 'has died' "$log" || echo 'the launcher killed all others')"
echo "$version, $ranks ranks: ended as they should, $deaths deaths"
