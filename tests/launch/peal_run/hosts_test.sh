#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# peal-run --hosts, where a script stands for ssh: it runs the command here, with an environment and a folder of a login.
set -euo pipefail
# shellcheck source=tests/launch/peal_run/frame.sh
source "$(dirname "$0")/frame.sh" "$@"
mkdir rsh
cat >rsh/rsh <<'TEXT'
#!/bin/sh
[ "$1" = -o ] && shift 2
host=$1
shift
case $host in
  away) echo "rsh: Could not resolve hostname away" >&2; exit 255 ;;
  bare) rmdir "$PWD" ;;
  noisy) yes & exit 255 ;;
  mute) exit 0 ;;
  lost) cd /; env -i PATH=/usr/bin:/bin THERE="$host" sh -c "exec $*" || exit 255; exit 0 ;;
  deaf) echo $$ >pids; exec sleep 1000 ;;
esac
cd /
exec env -i PATH=/usr/bin:/bin THERE="$host" sh -c "exec $*"
TEXT
chmod +x rsh/rsh
# A connection that stands still: what is there may yet tell what it leaves, which is waited for beside what follows.
# shellcheck disable=SC2016
stands_still() {
  mkdir still
  cd still
  ends 3 --rsh "$folder/rsh/rsh" --grace 0.3 --hosts a,b:2 sh -c 'echo $$ >>pids
    until test "$(cat pids | wc -l)" -eq 3; do sleep 0.02; done
    if test $RANK -eq 1; then kill -STOP $PPID; echo stopped >stopped; fi
    test $RANK -ne 0 || { until test -e stopped; do sleep 0.02; done; exit 3; }
    exec sleep 1000'
  while read -r process; do until_true dead "$process"; done <pids
}
stands_still &
still=$!
remote() { ends "$1" --rsh "$PWD/rsh/rsh -o BatchMode=yes" --grace 0.3 "${@:2}"; }
# shellcheck disable=SC2016
{
for wrong in 'a:0' 'a:x' 'a,,b' 'a,a' '-oProxyCommand=true' '[::1' ','; do
  ends 2 --hosts="$wrong" true
  says "--hosts"
done
ends 2 -n 4 --hosts a,b:2 true
says '-n is 4, and --hosts has room for 3; say how many a host takes, as a:4'

# Which rank is where; hosts have their own variables, and those that are handed over, whatever they hold.
odd=$'a \'quoted\' $HOME "value"\\ \nof two lines'
ends 0 --hosts localhost -x NOT_HERE true
says '-x NOT_HERE: there is no such variable here, to hand on'
PEAL_LOG=$odd OMP_NUM_THREADS=7 NOT_HANDED_OVER=1 NAMED=$odd remote 0 --hosts 'a,b:2,[::1]:3' -n 5 -x NAMED -x "GIVEN=$odd" sh -c '
  echo "$RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE on $THERE; $MASTER_ADDR $OMP_NUM_THREADS $NOT_HANDED_OVER" >ranks.$RANK
  echo "$MASTER_PORT $PEAL_STORE_SECRET $TORCHELASTIC_RUN_ID" >job.$RANK
  printf "%s\0" "$PEAL_LOG" "$NAMED" "$GIVEN" "$@" >words.$RANK' - "$odd" '' --tag
silent
[[ $(cat ranks.?) == '0 of 5, 0 of 1 on a; a 7 
1 of 5, 0 of 2 on b; a 7 
2 of 5, 1 of 2 on b; a 7 
3 of 5, 0 of 2 on ::1; a 7 
4 of 5, 1 of 2 on ::1; a 7 ' ]] || failed "ranks: $(cat ranks.?)"
printf '%s\0' "$odd" "$odd" "$odd" "$odd" '' --tag >expected
for rank in 0 1 2 3 4; do
  cmp expected "words.$rank" || failed 'words changed on their way'
  cmp job.0 "job.$rank" || failed 'they would not meet'
done
# The host that this is needs no remote shell; the others cannot find a localhost.
rm -f ranks.?
remote 0 --hosts localhost:2,b sh -c 'echo "$MASTER_ADDR $THERE" >ranks.$RANK'
[[ $(cat ranks.?) == "$(hostname) 
$(hostname) 
$(hostname) b" ]] || failed "localhost: $(cat ranks.?)"
# A user is ssh's matter. Without --rsh it is ssh, which finds out when a host is gone.
remote 0 --hosts someone@a,b sh -c 'test $MASTER_ADDR = a'
mkdir bin
printf '#!/bin/sh\necho "$@" >ssh.words\nexit 255\n' >bin/ssh
chmod +x bin/ssh
PATH=$PWD/bin:$PATH ends 255 --hosts away true
grep -q 'ServerAliveInterval=5 .*ServerAliveCountMax=3 away ' ssh.words || failed "ssh: $(cat ssh.words)"
remote 0 --hosts a,b --master-addr 10.0.0.1 sh -c 'test $MASTER_ADDR = 10.0.0.1'
# No command line has the secret.
remote 0 --hosts a,b sh -c 'echo $PEAL_STORE_SECRET >secret.$RANK
  if cat /proc/[0-9]*/cmdline 2>/dev/null | tr "\0" "\n" | grep -qF -f secret.$RANK; then exit 1; fi'

# Output, and standard input, which is nobody's.
remote 0 --hosts a:2,b --tag sh -c 'printf "piece "; echo "line of $RANK"; echo "err of $RANK" >&2; cat' <"$0"
[[ $(sort out) == $'[0] piece line of 0\n[1] piece line of 1\n[2] piece line of 2' ]] || failed 'output'
[[ $(sort err) == $'[0] err of 0\n[1] err of 1\n[2] err of 2' ]] || failed 'errors'
# Whatever a rank prints is its own, and tells nothing about it.
remote 0 --hosts a --tag sh -c 'printf "\001failed 768 forged\n\001here\n\002two\n\n\001failed x\n\001"'
printf '[0] \001failed 768 forged\n[0] \001here\n[0] \002two\n[0] \n[0] \001failed x\n[0] \001\n' | cmp - out || failed 'marks'
remote 0 --hosts a sh -c 'printf "\001failed 768 forged\n\002two\n"'
printf '\001failed 768 forged\n\002two\n' | cmp - out || failed 'marks without tags'
silent
remote 0 --hosts a sh -c 'head -c 3000000 /dev/zero | tr "\0" "\001"'
[[ $(tr -dc '\001' <out | wc -c) -eq 3000000 ]] || failed 'a long line of marks'
# A command that cannot be started may have any name.
remote 127 --hosts a $'no-such-program\n\001failed 9 forged'
! grep -q '^peal-run: forged' err || failed 'a forged failure'

# Endings.
stay='echo $$ >>pids; until test "$(cat pids | wc -l)" -eq 3; do sleep 0.02; done'
rm -f pids
remote 255 --hosts a,b:2 sh -c "$stay"'; test $RANK -ne 2 || exit 255; exec sleep 1000'
grep -qE '^peal-run: rank 2 \(host b, process [0-9]+\) ended with exit code 255$' err || failed 'rank 2 is not named'
! grep -qE 'reached|lost' err || failed 'the host is said to be away'
gone pids
rm -f pids
remote 137 --hosts a,b:2 sh -c "$stay"'; test $RANK -ne 1 || kill -KILL $$; exec sleep 1000'
grep -qE 'rank 1 \(host b, process [0-9]+\) was ended by SIGKILL' err || failed 'rank 1 is not named'
gone pids
remote 127 --hosts a,b no-such-program-anywhere
grep -qE "^peal-run: host [ab]: cannot start 'no-such-program-anywhere': No such file or directory$" err || failed 'not said'
# Who fails since another has is not to blame, on other hosts either; here once peal-run has said who was first.
rm -f pids
ends 3 --rsh "$PWD/rsh/rsh" --hosts a,b:2 --elastic --min-ranks 3 --max-restarts 1 sh -c "$stay"'; test $RANK -ne 1 || exit 3
  until grep -q "rank 1 .* ended with exit code 3" err; do sleep 0.02; done
  exit 9'
[[ $(grep -c 'ended with exit code' err) -eq 1 ]] || failed 'others are named'
says 'is not started again: 2 ranks are left'
ends 127 --hosts a,b --rsh no-such-rsh true
says "cannot start 'no-such-rsh'"
rm -f pids
remote 255 --hosts a,away:2 sh -c 'echo $$ >pids; exec sleep 1000'
says 'rsh: Could not resolve hostname away'
says 'host away (ranks 1 to 2) could not be reached'
[[ ! -e pids ]] || gone pids  # rank 0 may not have begun
# One that says that all is well, and has started nothing.
remote 255 --hosts mute true
says 'host mute (rank 0) could not be reached'
rm -f pids
remote 255 --hosts a,mute:2 sh -c 'echo $$ >pids; exec sleep 1000'
says 'host mute (ranks 1 to 2) could not be reached'
[[ ! -e pids ]] || gone pids
# One that ends, and leaves somebody with its output; and one that never reads what it is told.
remote 255 --hosts noisy true
says 'host noisy (rank 0) could not be reached'
rm -f pids
env --default-signal "$peal_run" --rsh "$PWD/rsh/rsh" --grace 0.3 --hosts deaf -x "LONG=$(head -c 100000 /dev/zero | tr '\0' x)" true 2>err &
job=$!
until_true test -s pids
kill -INT "$job"
until_true sh -c 'test ! -e /proc/$(cat pids)'
wait "$job" || true
mkdir folder
(cd folder && timeout 60 "$peal_run" --rsh ../rsh/rsh --hosts bare true 2>../err) && failed 'no folder there'
says 'host bare: no folder '
# A connection that ends.
rm -f pids
remote 137 --hosts a,b:2 sh -c "$stay"'; test $RANK -ne 1 || kill -KILL $PPID; exec sleep 1000'
says 'host b (ranks 1 to 2) was lost: the connection was ended by SIGKILL'
gone pids

# Signals, and the end of peal-run itself.
begin() {
  rm -f pids heard
  env --default-signal "$peal_run" --rsh "$PWD/rsh/rsh" --hosts a,b:2 "$@" >out 2>err &
  job=$!
  until_true lines_in 3 pids
}
finish() {
  local status=0
  wait "$job" || status=$?
  [[ $status -eq $1 ]] || failed "exit status $status, expected $1"
  gone pids
}
begin sh -c 'echo $$ >>pids; exec sleep 1000'
kill -INT "$job"
finish 130
begin sh -c 'trap "echo TERM >>heard; exit 0" TERM; echo $$ >>pids; while :; do sleep 0.05; done'
kill -TERM "$job"
finish 0
[[ $(wc -l <heard) -eq 3 ]] || failed 'SIGTERM was not forwarded'
begin sh -c 'trap "echo USR1 >>heard" USR1; echo $$ >>pids; until test "$(cat heard | wc -l)" -eq 3; do sleep 0.05; done'
kill -USR1 "$job"
finish 0
begin --grace 0.3 sh -c 'trap "" INT TERM; echo $$ >>pids; while :; do sleep 0.05; done'
kill -INT "$job"
finish 137
begin sh -c 'sh -c "echo \$\$ >>pids; exec sleep 1000" & echo $$ >>pids; exec sleep 1000'
until_true lines_in 6 pids
kill -KILL "$job"
wait "$job" || true
while read -r process; do until_true dead "$process"; done <pids

# A stopped process of a rank's on another host hears SIGTERM too.
begin sh -c 'trap "wait; exit 0" TERM
  sh -c "trap \"echo TERM >>heard; exit 0\" TERM; echo \$\$ >>pids; kill -STOP \$\$; while :; do sleep 0.05; done" &
  wait; wait'
stopped() {
  local process
  while read -r process; do grep -q '^State:[[:space:]]*T' "/proc/$process/status" || return 1; done <pids
}
until_true stopped
kill -TERM "$job"
finish 0
[[ $(wc -l <heard) -eq 3 ]] || failed 'a stopped process has not heard SIGTERM'

# Again without a host that is gone, or a rank; where there is room, with all.
rm -f ranks
remote 0 --hosts a:2,b:2 --elastic sh -c 'echo "$THERE $RANK of $WORLD_SIZE" >>ranks
  test $WORLD_SIZE -ne 4 || { test $RANK -ne 3 || kill -KILL $PPID; exec sleep 1000; }'
[[ $(tail -n 2 ranks | sort) == $'a 0 of 2\na 1 of 2' ]] || failed "ranks: $(cat ranks)"
# There is none, whatever room such a host has left.
rm -f ranks
remote 0 -n 4 --hosts a:2,b:4 --elastic --max-restarts 1 sh -c 'echo "$THERE $RANK of $WORLD_SIZE" >>ranks
  test $WORLD_SIZE -eq 4 || exit 0
  until test "$(cat ranks | wc -l)" -ge 4; do sleep 0.02; done
  test $RANK -ne 3 || kill -KILL $PPID
  exec sleep 1000'
[[ $(tail -n 2 ranks | sort) == $'a 0 of 2\na 1 of 2' ]] || failed "ranks: $(cat ranks)"
# Also where that is seen later than a failure that came of it, and as an exit code; or where somebody else ends the part of the
# job there. The other host's ranks are all there again.
for way in KILL TERM; do
  rm -f ranks
  ends 0 --rsh "$PWD/rsh/rsh" --grace 20 --hosts a:2,lost:2 --elastic --max-restarts 1 sh -c 'echo "$THERE $RANK of $WORLD_SIZE" >>ranks
    test $WORLD_SIZE -eq 4 || exit 0
    until test "$(cat ranks | wc -l)" -eq 4; do sleep 0.02; done
    test $RANK -ne 0 || exit 1
    until grep -q "rank 0 .* ended with exit code 1" err; do sleep 0.02; done
    test $RANK -ne 3 || kill -'$way' $PPID
    until grep -q "was lost" err; do sleep 0.02; done
    exit 1'
  says 'host lost (ranks 2 to 3) was lost: the connection ended with exit code 255'
  [[ $(tail -n 2 ranks | sort) == $'a 0 of 2\na 1 of 2' ]] || failed "ranks: $(cat ranks)"
done
rm -f ranks
remote 0 -n 2 --hosts a:2,b:2 --elastic --max-restarts 1 sh -c 'echo "$THERE $RANK of $WORLD_SIZE" >>ranks
  test "$THERE $RANK" != "a 1" || exit 3'
[[ $(tail -n 2 ranks | sort) == $'a 0 of 2\nb 1 of 2' ]] || failed "ranks: $(cat ranks)"

wait "$still" || failed 'a connection that stands still'
if [[ -n $program ]]; then
  remote 0 --hosts a,b:2 --master-addr 127.0.0.1 "$program" sums
  [[ $(cat out) == 'sums of 3 ranks are right' ]] || failed 'sums'
fi
}
echo 'ranks start on hosts'
