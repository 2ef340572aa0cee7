#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Output of ranks under peal-run --tag: whole lines with their rank, stdout and stderr apart, in each rank's order.
set -euo pipefail
# shellcheck source=tests/launch/peal_run/frame.sh
source "$(dirname "$0")/frame.sh" "$@"
# shellcheck disable=SC2016
{
# Lines in pieces, and long ones, of all ranks at once.
ends 0 -n 4 --tag sh -c 'long=$(head -c 20000 /dev/zero | tr "\0" x)
  for i in $(seq 50); do
    printf "a piece of "; printf "line $i of $RANK\n"
    printf "to err: " >&2; printf "line $i of $RANK\n" >&2
    echo "$long$i of $RANK"
  done'
[[ $(grep -cE '^\[([0-3])\] a piece of line [0-9]+ of \1$' out) -eq 200 ]] || failed 'lines on stdout'
long='/^\[[0-3]\] x+[0-9]+ of [0-3]$/ && gsub("x", "") == 20000 && substr($0, 2, 1) == substr($0, length($0))'
[[ $(awk "$long" out | wc -l) -eq 200 ]] || failed 'long lines'
[[ $(wc -l <out) -eq 400 ]] || failed 'other lines on stdout'
[[ $(grep -cE '^\[([0-3])\] to err: line [0-9]+ of \1$' err) -eq 200 && $(wc -l <err) -eq 200 ]] || failed 'lines on stderr'
for rank in 0 1 2 3; do
  diff <(grep "^\[$rank\] a" out) <(seq 50 | sed "s/.*/[$rank] a piece of line & of $rank/") || failed "the order of rank $rank"
done
# A last line without an end, an empty one, bytes that are no text, and what a rank leaves that fails.
ends 3 --tag sh -c 'printf "\n\n\377\000b\nlast"; exit 3'
printf '[0] \n[0] \n[0] \377\000b\n[0] last\n' | cmp - out || failed 'bytes'
# What ranks leave behind may write until it ends.
ends 0 -n 2 --tag sh -c 'sh -c "trap \"echo ended; exit\" TERM; echo \$\$ >>pids; while :; do sleep 0.05; done" &
  until test "$(cat pids | wc -l)" -eq 2; do sleep 0.02; done'
[[ $(sort out) == $'[0] ended\n[1] ended' ]] || failed 'what was left behind'
# Who is none of the job's may write for ever into a rank's stream.
rm -f pids
timeout 60 "$peal_run" --tag sh -c 'echo $$ >pids; until test -e others; do sleep 0.02; done; exit 3' >/dev/null 2>err &
job=$!
until_true test -s pids
yes >"/proc/$(cat pids)/fd/1" 2>/dev/null &
stranger=$!
writes() { [[ $(sed -n 's/^wchar: //p' "/proc/$stranger/io") -gt 100000 ]]; }
until_true writes
: >others
status=0
wait "$job" || status=$?
kill "$stranger" 2>/dev/null || true
[[ $status -eq 3 ]] || failed "exit status $status, expected 3"
says 'ended with exit code 3'
# A line that does not end costs a megabyte, and is handed on.
ends 0 --tag sh -c 'head -c 3000000 /dev/zero | tr "\0" x'
[[ $(tr -dc x <out | wc -c) -eq 3000000 ]] || failed 'a long line'
# Without tags it is the ranks' own stream.
ends 0 sh -c 'printf "no end"; printf "err" >&2'
[[ $(cat out) == 'no end' && $(cat err) == err ]] || failed 'without tags'

# Nobody reads on: ranks learn it as without peal-run.
status=$({ timeout 60 "$peal_run" -n 2 --tag --grace 0.3 sh -c 'while :; do echo line; done' 2>err || echo $? >status; } | head -n 1)
[[ $status == '[0] line' || $status == '[1] line' ]] || failed "head: $status"
[[ $(cat status) -eq 141 ]] || failed "exit status $(cat status), expected 141"
# Somebody reads slowly: a death is seen nevertheless.
mkfifo pipe
exec 3<>pipe
status=0
timeout 60 "$peal_run" -n 2 --tag --grace 0.3 sh -c 'test $RANK -eq 0 || { until test -s pid; do sleep 0.02; done; sleep 0.3; kill -KILL $$; }
  echo $$ >pid; while :; do echo line; done' >pipe 2>err &
job=$!
until_true grep -q 'was ended by SIGKILL' err
until_true sh -c 'test -s pid && ! test -e /proc/$(cat pid)'
cat <&3 >/dev/null &
reader=$!
wait "$job" || status=$?
kill "$reader"
[[ $status -eq 137 ]] || failed "exit status $status, expected 137"
# What ranks have written before they ended is there, whatever the user's signals meanwhile.
mkfifo late
exec 4<>late
rm -f pid
"$peal_run" --tag sh -c 'echo $$ >pid; head -c 40000 /dev/zero | tr "\0" "\n"' >late 2>err &
job=$!
until_true sh -c 'test -s pid && ! test -e /proc/$(cat pid)'
kill -USR1 "$job"
heard() { ! grep -q '^ShdPnd:.*[1-9a-f]' "/proc/$job/status"; }
until_true heard
[[ $(timeout 30 head -n 40000 <&4 | wc -l) -eq 40000 ]] || failed 'lines that were written are lost'
wait "$job" || failed 'all was well'
}
echo 'lines are whole'
