#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A job without MPI on two hosts, its ranks started by torchrun's variables alone: they meet, choose two levels by themselves
# and their sums are right, however many are on each; one that is killed, and a cable that is cut, end the others, who name
# it.
#   torchrun_test.sh PROGRAM (tests/mpi/endings.cpp)
set -euo pipefail
program=${1:?usage: torchrun_test.sh PROGRAM}
# shellcheck source=tests/launch/two_hosts/frame.sh
source "$(dirname "$0")/frame.sh"

# start HOSTS ARGUMENTS...: rank i on the i-th host, as 0011
start() {
  local hosts=$1 rank host before all
  shift
  pids=()
  for ((rank = 0; rank < ${#hosts}; ++rank)); do
    host=${hosts:rank:1} before=${hosts:0:rank}
    before=${before//[!$host]/} all=${hosts//[!$host]/}
    : >"$folder/$rank"  # what was written before is not this start's
    RANK=$rank WORLD_SIZE=${#hosts} LOCAL_RANK=${#before} LOCAL_WORLD_SIZE=${#all} MASTER_ADDR=10.78.0.1 MASTER_PORT=29500 \
      on "$host" timeout 60 "$program" "$@" >"$folder/$rank" 2>&1 &
    pids+=($!)
  done
}
end() {
  local rank status
  statuses=
  for rank in "${!pids[@]}"; do
    status=0
    wait "${pids[rank]}" || status=$?
    [[ $status -ne 124 ]] || fail "rank $rank has not ended"
    statuses+="$status "
  done
}

for hosts in 0011 000111 0111 01; do
  PEAL_LOG=info PEAL_DEBUG=algo PEAL_TIMEOUT=30 start "$hosts" sums
  end
  [[ $statuses =~ ^(0 )+$ ]] || fail "sums on $hosts: $statuses"
  grep -q "sums of ${#hosts} ranks are right" "$folder/0" || fail "sums on $hosts"
  by=$([[ $hosts == 01 ]] && echo circulant || echo hierarchical)
  grep -q "all_reduce of 1200004 bytes .* on ${#hosts} ranks: $by" "$folder/0" || fail "sums on $hosts are not by $by"
done
PEAL_STORE_SECRET=of-theirs PEAL_SOCKET_IFNAME=cable PEAL_TIMEOUT=30 start 0011 sums
end
[[ $statuses == '0 0 0 0 ' ]] || fail "sums with a secret by one device: $statuses"
[[ $(cat "$folder/0") == 'sums of 4 ranks are right' ]] || fail 'sums of 4'

PEAL_TIMEOUT=30 start 0011 die 20011
end
[[ $statuses == '1 1 1 137 ' ]] || fail "die: $statuses"
# By its own connection, or by what rank 2 beside it tells. One of a host says for all there what ended them.
named='rank 3 \(host-1, 10.78.0.2 port [0-9]+\): it is gone|\(host-1, .*rank 3 \(process [0-9]+\) has died'
grep -Eq "$named" "$folder"/[01] || fail 'die: nobody on the other host named rank 3 and its host'
grep -Eq 'rank 3 \(.*(has died|it is gone)' "$folder/2" || fail 'die: rank 2 did not name rank 3'

# Its host seems to compute for ever: the last rank's timer is far away.
PEAL_TIMEOUT=4 start 0011 die 50000000
working
cut_cable
end
[[ $statuses == '1 1 1 1 ' ]] || fail "cut: $statuses"
names_the_other "$folder"/[0-3]
echo 'two hosts without MPI'
