#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# mpirun starts a job on two hosts: sums are right, by two levels that peal chooses, ranks train as one process does. Where the
# cable is cut, every rank ends by the deadline, and who says why names a rank of the other host; or, where mpirun's own is
# sooner, as peal-mpirun asks for, mpirun names the host and ends with all ranks.
#   mpirun_test.sh PEAL_MPIRUN PROGRAM (tests/mpi/endings.cpp) [PARITY (tests/mpi/parity_test.cpp)]
set -euo pipefail
peal_mpirun=${1:?usage: mpirun_test.sh PEAL_MPIRUN PROGRAM [PARITY]} program=${2:?} parity=${3-}
# shellcheck source=tests/launch/two_hosts/frame.sh
source "$(dirname "$0")/frame.sh"
[[ $(mpirun --version 2>/dev/null) == *'Open MPI'* ]] || skip 'mpirun is not that of Open MPI'

# shellcheck disable=SC2054
net=(--mca btl_tcp_if_include 10.78.0.0/24 --mca oob_tcp_if_include 10.78.0.0/24 --mca btl tcp,vader,self)
run() {
  on 0 timeout 60 "$peal_mpirun" -n 4 -H 10.78.0.1:2,10.78.0.2:2 --mca plm_rsh_agent "$folder/rsh" "${net[@]}" \
    -x PEAL_LOG -x PEAL_TIMEOUT -x PEAL_DEBUG -x OMP_NUM_THREADS "$@" >"$folder/0" 2>&1
}
export PEAL_DEBUG=algo PEAL_TIMEOUT=30
PEAL_LOG=info run "$program" sums || fail 'mpirun'
grep -q 'sums of 4 ranks are right' "$folder/0" || fail 'sums by mpirun'
grep -q 'all_reduce of 1200004 bytes .* on 4 ranks: hierarchical' "$folder/0" || fail 'sums are not on two levels'
if [[ -n $parity ]]; then
  run "$parity" || fail 'training'
  [[ $(grep -c 'SUCCESS!' "$folder/0") -eq 4 ]] || fail 'training'
fi

# shellcheck disable=SC2016
begin() {
  : >"$folder/0"  # what the job before has written is not this one's
  run sh -c 'exec "$0" die 50000000 2>"$1/rank.$OMPI_COMM_WORLD_RANK"' "$program" "$folder" &
  job=$!
  working
}
PEAL_TIMEOUT=4 begin
cut_cable
gone_by_the_deadline "$program die"
names_the_other "$folder"/rank.[0-3]
# mpirun has told its part on the other host to end, and waits for an answer.
ip netns pids "${spaces[0]}" | xargs -r kill -KILL
wait "$job" || true
ip netns pids "${spaces[1]}" | xargs -r kill -KILL
mend_cable
# It asks for the other host as peal-mpirun says, here more often.
export OMPI_MCA_oob_tcp_keepalive_time=1 OMPI_MCA_oob_tcp_keepalive_intvl=1 OMPI_MCA_oob_tcp_keepalive_probes=3
PEAL_TIMEOUT=30 begin
cut_cable
status=0
wait "$job" || status=$?
[[ $status -ne 0 && $status -ne 124 ]] || fail "cut: exit status $status"
grep -q 'lost communication with a remote daemon' "$folder/0" || fail 'cut: mpirun did not say so'
grep -q 'on node 10.78.0.2' "$folder/0" || fail 'cut: mpirun did not name the host'
gone_by_the_deadline "$program die" orted
echo 'two hosts by mpirun'
