#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# However a job of peal-run ends: its exit status, what is said, and that nothing of it remains.
set -euo pipefail
# shellcheck source=tests/launch/peal_run/frame.sh
source "$(dirname "$0")/frame.sh" "$@"
# shellcheck disable=SC2016
{
host=$(hostname)
# One that does not end by SIGKILL either is named and left. It stands for one that waits in the kernel, and is kept from being
# reaped by a tracer (PTRACE_SEIZE); where there may be none, it ends.
# It takes six seconds, beside what follows; so does another, whose supervisor is an agent.
# one_stays HOST OPTIONS...
one_stays() {
  local host=$1
  shift
  mkdir "stuck on $host"
  cd "stuck on $host"
  "$peal_run" -n 2 "$@" --grace 0.2 --max-restarts 1 sh -c 'test $RANK -ne 1 || { echo $$ >pids; exec sleep 1000; }
  until test -s traced; do sleep 0.02; done; exit 3' 2>err &
  job=$!
  until_true test -s pids
  traced=1
  if [[ $(uname -m) == x86_64 ]]; then
    perl -e 'my $got = syscall(101, 0x4206, $ARGV[0] + 0, 0, 0); open(F, ">traced"); print F "$got\n"; close(F); sleep 60 if $got == 0' \
      "$(cat pids)" &
    tracer=$!
    until_true test -s traced
    traced=$(cat traced)
  else
    echo no >traced
  fi
  status=0
  wait "$job" || status=$?
  [[ $status -eq 3 ]] || failed "exit status $status, expected 3"
  if [[ $traced == 0 ]]; then
    says "rank 1 (host $host, process $(cat pids)) still there 5 s after SIGKILL: left behind"
    ! grep -q 'starts again' err || failed 'started again beside it'
    kill "$tracer"
  fi
  until_true dead "$(cat pids)"
}
one_stays "$host" &
stuck=$!
one_stays localhost --hosts localhost:2 &
stuck_there=$!
ends 0 -n 3 true
silent
ends 3 -n 3 sh -c 'exit $((RANK == 1 ? 3 : 0))'
says "rank 1 (host $host, process "
says ') ended with exit code 3'

# The first that fails counts: others that fail since are not named, and those that don't end are ended. Rank 0 has to fail
# before it is ended, and needs more time for that where the machine is slow.
for grace in 0.3 3; do
  rm -f pids first failed
  ends 3 -n 4 --grace $grace sh -c 'test $RANK -ne 3 || trap "" TERM
    echo $$ >>pids
    case $RANK in
      0) until test -s first && test ! -e /proc/$(cat first); do sleep 0.02; done; echo 9 >failed; exit 9 ;;
      1) until test "$(cat pids | wc -l)" -eq 4; do sleep 0.02; done; echo $$ >first; exit 3 ;;
      2) exec sleep 1000 ;;
      3) while :; do sleep 0.05; done ;;
    esac'
  [[ ! -e failed ]] || break
done
[[ -e failed ]] || failed 'rank 0 has not failed'
grep -q 'rank 1 .* ended with exit code 3' err || failed 'rank 1 is not named'
! grep -q 'exit code 9' err || failed 'rank 0 is named'
says "peal-run: rank 2, rank 3 still there $grace s later: SIGTERM"
says "peal-run: rank 3 still there $grace s later: SIGKILL"
[[ $(wc -l <pids) -eq 4 ]] || failed 'not all began'
gone pids

# Signals.
for signal in KILL SEGV; do
  rm -f pids
  ends $((128 + $(kill -l $signal))) -n 3 --grace 0.3 sh -c 'echo $$ >>pids
    test $RANK -ne 2 || { until test "$(cat pids | wc -l)" -eq 3; do sleep 0.02; done; kill -'$signal' $$; }; exec sleep 1000'
  grep -qE "rank 2 \(host $host, process [0-9]+\) was ended by SIG$signal" err || failed "rank 2 is not named"
  gone pids
done
# A stopped rank.
rm -f pids
ends 3 -n 2 --grace 0.2 sh -c 'echo $$ >>pids
  test $RANK -ne 0 || kill -STOP $$
  until test "$(cat pids | wc -l)" -eq 2; do sleep 0.02; done
  exit 3'
gone pids

# What a rank starts and leaves ends with the job, also in a session of its own.
rm -f pids
ends 0 -n 2 --grace 0.3 sh -c 'setsid sh -c "echo \$\$ >>pids; exec sleep 1000" & sh -c "echo \$\$ >>pids; exec sleep 1000" &
  until test "$(cat pids | wc -l)" -eq 4; do sleep 0.02; done'
says 'ended 4 processes left behind'
gone pids
# What ends with its rank, a moment later, was not left.
ends 0 -n 1 sh -c 'sleep 0.02 & exit 0'
silent
ends 3 --grace 0.2 sh -c 'setsid sh -c "echo \$\$ >>pids; trap \"\" TERM; while :; do sleep 0.05; done" &
  until test "$(cat pids | wc -l)" -eq 5; do sleep 0.02; done; exit 3'
gone pids
# A signal ends the patience with it, on another host too.
for hosts in '' localhost; do
  rm -f pids rank
  env --default-signal "$peal_run" ${hosts:+--hosts "$hosts"} --grace 1000 sh -c 'echo $$ >rank
    setsid sh -c "trap \"\" TERM; echo \$\$ >>pids; while :; do sleep 0.05; done" & until test -s pids; do sleep 0.02; done' 2>err &
  job=$!
  until_true sh -c 'test -s rank && test ! -e /proc/$(cat rank)'
  kill -INT "$job"
  until_true sh -c 'test ! -e /proc/$(cat pids)'
  wait "$job" || failed 'all ranks were done'
done
# No zombie while others go on.
ends 0 -n 2 sh -c 'echo $$ >pid.$RANK; test $RANK -eq 0 || exit 0
  until test -s pid.1; do sleep 0.02; done
  until test ! -e /proc/$(cat pid.1); do sleep 0.02; done'

# A signal to peal-run, sent once all are there. Bash starts what is in the background with SIGINT ignored.
begin() {
  rm -f pids heard
  env --default-signal "$peal_run" -n 2 "$@" >out 2>err &
  job=$!
  until_true lines_in 2 pids
}
finish() {
  local status=0
  wait "$job" || status=$?
  [[ $status -eq $1 ]] || failed "exit status $status, expected $1"
  gone pids
}
for signal in INT TERM HUP; do
  begin sh -c 'echo $$ >>pids; exec sleep 1000'
  kill -$signal "$job"
  finish $((128 + $(kill -l $signal)))
  [[ $signal == INT ]] || silent
done
begin sh -c 'echo $$ >>pids; exec sleep 1000'
kill -INT "$job"
finish 130
[[ $(cat err) == 'peal-run: interrupted: ends the ranks; another Ctrl-C kills them at once' ]] || failed 'nothing of Ctrl-C'
begin sh -c 'trap "echo TERM >>heard; exit 0" TERM; echo $$ >>pids; while :; do sleep 0.05; done'
kill -TERM "$job"
finish 0
[[ $(cat heard) == $'TERM\nTERM' ]] || failed 'SIGTERM was not forwarded'
begin sh -c 'trap "echo USR1 >>heard" USR1; echo $$ >>pids; until test "$(cat heard | wc -l)" -eq 2; do sleep 0.05; done'
kill -USR1 "$job"
finish 0
begin sh -c 'trap "echo INT >>heard" INT TERM; echo $$ >>pids; while :; do sleep 0.05; done'
kill -INT "$job"
until_true lines_in 2 heard
kill -INT "$job"
finish 137
# What comes twice at once is one wish: a terminal that closes, timeout. A second later it is another. Sent while peal-run is
# stopped, both come at once, however slow this is.
begin sh -c 'trap "sleep 0.3; exit 0" HUP; trap "" TERM; echo $$ >>pids; while :; do sleep 0.05; done'
kill -STOP "$job"
kill -HUP "$job"
kill -TERM "$job"
kill -CONT "$job"
finish 0
begin sh -c 'trap "echo TERM >>heard" TERM; echo $$ >>pids; while :; do sleep 0.05; done'
kill -TERM "$job"
until_true lines_in 2 heard
sleep 1.1
kill -TERM "$job"
finish 137
! grep -q 'still there' err || failed 'the second signal is not heard'
begin --grace 0.3 sh -c 'trap "" INT TERM; echo $$ >>pids; while :; do sleep 0.05; done'
kill -INT "$job"
finish 137
says 'still there 0.3 s later: SIGTERM'
# After SIGTERM ranks have a time of their own to save, and none gets a second one, whatever the patience with failures is.
begin --grace 0.1 sh -c 'trap "echo TERM >>heard" TERM; echo $$ >>pids; until test -s heard; do sleep 0.05; done; sleep 1; echo saved >>heard'
kill -TERM "$job"
finish 0
! grep -q 'still there' err || failed 'it was not patient with those that save'
[[ $(sort heard) == $'TERM\nTERM\nsaved\nsaved' ]] || failed "not once SIGTERM, or not saved: $(cat heard)"
begin --grace 1000 --term-grace 0.3 sh -c 'trap "" TERM; echo $$ >>pids; while :; do sleep 0.05; done'
kill -TERM "$job"
finish 137
says 'rank 0, rank 1 still there 0.3 s later: SIGKILL'
# A patience for ever is one.
rm -f heard
ends 3 -n 2 --grace 1e10 sh -c 'trap "echo TERM >>heard" TERM; echo $$ >ready.$RANK
  until test -s ready.0 && test -s ready.1; do sleep 0.02; done
  test $RANK -ne 1 || exit 3
  until grep -q "exit code 3" err; do sleep 0.02; done
  sleep 0.3'
[[ ! -e heard && $(wc -l <err) -eq 1 ]] || failed 'it was not patient'
# What is ignored when it begins stays so, here and for the ranks (nohup).
rm -f pids heard go
(trap '' HUP; exec env --default-signal=INT,TERM "$peal_run" -n 2 --grace 0.1 sh -c 'echo $$ >>pids; until test -e go; do sleep 0.02; done') >out 2>err &
job=$!
until_true lines_in 2 pids
kill -HUP "$job"
while read -r process; do kill -HUP "$process"; done <pids
sleep 0.5
: >go
finish 0
silent
# Ranks end with peal-run, whatever ends that, and what they have started does, in their groups.
begin sh -c 'sh -c "trap \"\" INT TERM; echo \$\$ >>pids; exec sleep 1000" & echo $$ >>pids; exec sleep 1000'
until_true lines_in 4 pids
kill -KILL "$job"
wait "$job" || true
while read -r process; do until_true dead "$process"; done <pids

for job in "$stuck" "$stuck_there"; do wait "$job" || failed 'one that does not end by SIGKILL'; done
# A program of peal: its ranks say themselves what they miss, and leave no memory behind.
if [[ -n $program ]]; then
  ends 1 -n 3 "$program" differ
  says 'must make the same calls'
  ! grep -q 'SIGTERM' err || failed 'they had to be ended'
  for moment in 150 5000 20011; do
    ends 137 -n 3 "$program" die "$moment"
    grep -qE "peal-run: rank 2 \(host $host, process [0-9]+\) was ended by SIGKILL" err || failed 'rank 2 is not named'
    grep -q 'rank 2 (process [0-9]*) has died' err || failed 'die: no rank named rank 2'
    ! grep -q 'SIGTERM' err || failed 'they had to be ended'
  done
  # A rank that stands still: the others say that they have waited for it, and it is ended.
  PEAL_TIMEOUT=2 ends 1 -n 3 --grace 1 sh -c 'test $RANK -ne 2 || kill -STOP $$; exec "$0" sums' "$program"
  says '(PEAL_TIMEOUT)'
  grep -qE 'peal-run: rank [01] .* ended with exit code 1' err || failed 'no rank that waited is named'
  [[ -z $(remaining_segments) ]] || failed "a segment remains: $(remaining_segments)"
fi
}
echo 'jobs end'
