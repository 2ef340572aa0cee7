#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Job::shrink() and peal-run --keep-survivors: ranks go on without those that were killed, and nothing of the job remains.
#   survivors_test.sh PEAL_RUN PROGRAM (tests/launch/shrink_ranks.cpp) EXAMPLE (examples/13_shrink.cpp, or '') [PEAL_MPIRUN]
set -euo pipefail
example=${3-} mpirun=${4-}
# shellcheck source=tests/launch/peal_run/frame.sh
source "$(dirname "$0")/frame.sh" "$@"
right() { [[ $(cat out) == "sums of $1 ranks are right" ]] || failed "not the sums of $1 ranks"; }

# LOST RANKS...: of so many ranks these are killed
goes_on() {
  local world=$1 rank
  shift
  ends 0 -n "$world" --keep-survivors "$program" die "$@"
  right $((world - $#))
  for rank in "$@"; do grep -qE "rank $rank \(host .*\) was ended by SIGKILL" err || failed "rank $rank is not named"; done
  says 'the ranks that were left have ended well: exit status 0'
}
goes_on 3 1
goes_on 3 0
goes_on 2 1
goes_on 2 0
PEAL_TRACE="$PWD/trace" goes_on 4 0 2
# What they did before and after is recorded, by the numbers that they had then; who was killed has written nothing.
ended() { grep -lx end "trace$1"/rank-*.trace | tr '\n' ' '; }
[[ $(ended '') == 'trace/rank-1.trace trace/rank-3.trace ' ]] || failed "traces of the first world: $(ls -R trace)"
after=$(basename trace/shrink-*)
[[ $(ended "/$after") == "trace/$after/rank-0.trace trace/$after/rank-1.trace " ]] || failed "traces after it: $(ls -R trace)"
grep -qx 'rank 1 of 2' "trace/$after/rank-1.trace" || failed "rank 1's trace is another's"
grep -q '^operation .*all_reduce' "trace/$after/rank-1.trace" || failed "rank 1's trace has no all_reduce"

# Without peal-run: ranks by their variables alone.
port=$("$peal_run" sh -c 'echo $MASTER_PORT')
pids=()
for rank in 0 1 2; do
  RANK=$rank WORLD_SIZE=3 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=3 MASTER_ADDR=localhost MASTER_PORT=$port timeout 60 "$program" die 0 \
    >"out.$rank" 2>"err.$rank" &
  pids+=($!)
done
statuses=
for rank in 0 1 2; do
  status=0
  wait "${pids[rank]}" || status=$?
  statuses+="$status "
done
[[ $statuses == '137 0 0 ' && $(cat out.1) == 'sums of 2 ranks are right' ]] || failed "by variables: $statuses $(cat err.*)"
# The example.
if [[ -n $example ]]; then
  ends 0 -n 3 --keep-survivors "$example"
  [[ $(sort out) == $'rank 0 of 2, once 3, is done with step 20\nrank 1 of 2, once 3, is done with step 20' ]] || failed 'the example'
fi

# One more dies, at some moment of the others' shrink().
for after in 0 300 1000 2500 5000 10000; do
  for second in 0 2; do
    DIES_AFTER=$after ends 0 -n 4 --keep-survivors "$program" twice 1 $second
    right 2
  done
done

# Where nobody is dead the group is as large as before.
ends 0 -n 3 --keep-survivors "$program" none
right 3
silent
# One that lives and does not come is named.
PEAL_TIMEOUT=1 ends 1 -n 3 --keep-survivors "$program" absent
says 'in shrink() for rank 2 of the first world: every rank that lives must call it, or end'
# One that works is waited for, in the first world and in a later one.
PEAL_TIMEOUT=2 ends 0 -n 3 --keep-survivors "$program" busy
right 2
# Who comes when the others have given up throws as soon as it sees them in their next call.
PEAL_TIMEOUT=2 ends 0 -n 3 --keep-survivors "$program" late
right 3
says 'call shrink() again'
# One net and one optimizer over a death; rank 0 is a step ahead.
for lost in 0 2; do
  ends 0 -n 3 --keep-survivors "$program" trains $lost
  [[ $(cat out) == '2 ranks train on' ]] || failed 'the training'
done
# Who has ended well before another failed does not speak for those that were left.
ends 3 -n 2 --keep-survivors sh -c 'echo $$ >early.$RANK; test "$RANK" -ne 0 || exit 0
  until test -s early.0 && test ! -e /proc/$(cat early.0); do sleep 0.02; done; exit 3'
# A signal ends a job that has gone on as it ends any: who saves has --term-grace for it, and its status counts.
term_comes() {
  local status=0 lost
  rm -f saves lost
  "$peal_run" -n 2 --keep-survivors --grace 0.2 --term-grace 20 sh -c "$1" >out 2>err &
  local job=$!
  until_true test -s saves
  until_true test -s lost
  lost=$(cat lost)
  until_true test ! -e "/proc/$lost"
  kill -TERM "$job"
  wait "$job" || status=$?
  [[ $status -eq $2 ]] || failed "SIGTERM after a death: exit status $status, expected $2"
}
for code in 0 143; do
  term_comes 'test "$RANK" -ne 1 || { echo $$ >lost; kill -KILL $$; }
    trap "sleep 1; exit '$code'" TERM; echo $$ >saves; while :; do sleep 0.05; done' $code
done
# Who ends since another was killed is not lost: the job starts again with it.
ends 0 -n 2 --keep-survivors --elastic --max-restarts 1 --min-ranks 1 sh -c 'test "$WORLD_SIZE" -eq 2 || exit 0
  echo $$ >lost.$RANK; test "$RANK" -ne 1 || kill -KILL $$
  until test -s lost.1 && test ! -e /proc/$(cat lost.1); do sleep 0.02; done; exit 1'
says 'starts again, 1 of 1, with 1 rank'
# Without the option the others are ended, and the status is of the first that failed; it is too where nobody ends well.
ends 137 -n 2 --grace 0.2 sh -c 'test "$RANK" -ne 1 || kill -KILL $$; exec sleep 1000'
ends 137 -n 2 --keep-survivors sh -c 'echo $$ >pid.$RANK; test "$RANK" -ne 1 || kill -KILL $$
  until test -s pid.1 && test ! -e /proc/$(cat pid.1); do sleep 0.02; done; exit 4'
says ') ended with exit code 4'
ends 2 -n 2 --keep-survivors --hosts localhost:2 true
says '--keep-survivors is for one machine'

# A world of one has nobody to lose.
ends 0 -n 1 --keep-survivors "$program" none
right 1
# Who cannot says what to do instead.
ends 1 "$program" threads
says 'is for ranks that are processes of their own, started by peal-run --keep-survivors'
ends 1 -n 2 --keep-survivors sh -c "PEAL_NODE=node-\$RANK exec '$program' refused"
says 'shrink() is for ranks that see each other'"'"'s processes, on one node, but the ranks are on several nodes'
if [[ -n $mpirun ]]; then
  status=0
  "$mpirun" -n 2 "$program" refused >out 2>err || status=$?
  [[ $status -ne 0 ]] || failed 'shrink() over MPI'
  says 'shrink() is not for ranks that MPI started'
  says 'peal-run --max-restarts or --elastic'
fi
[[ -z $(remaining_segments) ]] || failed "left behind: $(remaining_segments)"
