#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What ranks say where a start cannot go well: who, where, what was expected, what came, and what to do. None hangs, and
# nothing remains. Prints the messages.
#   messages_test.sh PROGRAM (tests/mpi/endings.cpp) OTHER_BUILD (the same, of another version)
set -euo pipefail

program=${1:?usage: messages_test.sh PROGRAM OTHER_BUILD} other_build=${2:?}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export PEAL_LOG=warning OMP_NUM_THREADS=1 PEAL_TIMEOUT=30
# shellcheck source=tests/segments.sh
source "$(dirname "$0")/../segments.sh"
failed() {
  echo "FAILED: $*"
  exit 1
}

# shellcheck source=tests/launch/ports.sh
source "$(dirname "$0")/ports.sh"

declare -A process=()
trouble() { # TITLE: the next one, at a port of its own
  echo
  echo "--- $*"
  port=$(free_port)
}
start() { # NAME RANK COMMAND...: of two
  RANK=$2 WORLD_SIZE=2 LOCAL_RANK=${local_rank-$2} LOCAL_WORLD_SIZE=${local_world-2} MASTER_PORT=$port \
    MASTER_ADDR=${master-localhost} timeout --foreground 60 "${@:3}" >"$folder/$1" 2>&1 &
  process[$1]=$!
}
ended() { # STATUS NAME...: those that were started
  local name status
  for name in "${@:2}"; do
    status=0
    wait "${process[$name]}" || status=$?
    echo "$name, exit status $status:"
    cat "$folder/$name"
    [[ $status -eq $1 ]] || failed "$name ended with $status, expected $1"
  done
}
says() { # NAME TEXT...
  local text
  for text in "${@:2}"; do
    grep -qE -e "$text" "$folder/$1" || failed "$1 does not say: $text"
  done
}

# Told below: they wait for their deadlines beside the others.
port=$(free_port)
PEAL_STORE_SECRET=one PEAL_TIMEOUT=7 start 'rank 0 of one secret' 0 "$program" sums
PEAL_STORE_SECRET=another PEAL_TIMEOUT=7 start 'rank 1 of another' 1 "$program" sums
port=$(free_port)
nowhere=$port
master=no-such-host.invalid PEAL_TIMEOUT=7 local_rank=0 local_world=1 start 'rank 1 of nowhere' 1 "$program" sums

trouble 'a port that another job has'
PEAL_STORE_SECRET=of-theirs PEAL_TIMEOUT=30 start 'the other job' 0 "$program" sums
for ((look = 0; look < 1500; ++look)); do
  if listened_at "$port"; then break; fi
  sleep 0.02
done
start 'rank 0' 0 "$program" sums
start 'rank 1' 1 "$program" sums
ended 1 'rank 0' 'rank 1'
kill "${process[the other job]}" 2>/dev/null || true
wait "${process[the other job]}" || true
says 'rank 0' "rank 0 of 2 at 127.0.0.1 port $port cannot listen: Address already in use; choose a free port"
says 'rank 1' "rank 1 of 2 at 127.0.0.1 port $port was turned away: it has no secret .PEAL_STORE_SECRET."

trouble 'a secret that differs'
ended 1 'rank 1 of another' 'rank 0 of one secret'
says 'rank 1 of another' "was turned away: it came as rank 1, and its secret .PEAL_STORE_SECRET. is another" 'start all ranks with one'
says 'rank 0 of one secret' '^\[rank 0\] warning: .* was turned away: it came as rank 1' 'waited 7 s .PEAL_TIMEOUT. for .*rank 1 did not connect; .*its secret .PEAL_STORE_SECRET. is another'

trouble 'ranks of different builds'
start 'rank 0' 0 "$program" sums
start 'rank 1' 1 "$other_build" sums
ended 1 'rank 0' 'rank 1'
for rank in 0 1; do
  says "rank $rank" "peal [0-9].*rank 0" "peal other.*rank 1" 'start them from one binary'
done

trouble 'a /dev/shm that is too small'
apart=(unshare -m)
"${apart[@]}" mount -t tmpfs none /dev/shm 2>/dev/null || apart=(unshare -rm)
if "${apart[@]}" mount -t tmpfs none /dev/shm 2>/dev/null; then
  # shellcheck disable=SC2016
  "${apart[@]}" bash -c 'mount -t tmpfs -o size=4k none /dev/shm
    for rank in 0 1; do
      RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=$2 \
        timeout --foreground 60 "$1" sums >"$3/rank $rank" 2>&1 &
    done
    wait' - "$program" "$port" "$folder"
  for rank in 0 1; do
    echo "rank $rank:"
    cat "$folder/rank $rank"
    says "rank $rank" 'no shared memory of [0-9]+ bytes .*No space left on device' 'give /dev/shm more room .mount'
  done
else
  echo 'left out: this user may not mount anything'
fi

trouble 'a host whose name is not known'
ended 1 'rank 1 of nowhere'
says 'rank 1 of nowhere' "at no-such-host.invalid port $nowhere waits for rank 0, and so far in vain: the name" \
  'waited 7 s .PEAL_TIMEOUT. for rank 0' 'the name no-such-host.invalid is not known: .*; name a host or an address .*MASTER_ADDR'

[[ -z $(remaining_segments) ]] || failed "a segment remains: $(remaining_segments)"
echo
echo 'all ended, and said why'
