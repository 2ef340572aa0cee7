#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# peal-run --max-restarts and --elastic: what is started again, how often, and with which ranks.
set -euo pipefail
# shellcheck source=tests/launch/peal_run/frame.sh
source "$(dirname "$0")/frame.sh" "$@"
# shellcheck disable=SC2016
{
# Each start is another job, and knows how often it was started.
program='echo "$MASTER_PORT $PEAL_STORE_SECRET" >>job.$RANK
  echo "$RANK $WORLD_SIZE $TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS" >>ranks'
# Nobody fails before all of its start have written.
together='until test "$(grep -c " $TORCHELASTIC_RESTART_COUNT [0-9]*\$" ranks)" -eq $WORLD_SIZE; do sleep 0.02; done'
rm -f ranks job.*
ends 0 -n 3 --max-restarts 3 --grace 0.3 sh -c "$program; $together"'; test $RANK -ne 1 || test $TORCHELASTIC_RESTART_COUNT -eq 3 || exit 5'
[[ $(sort ranks) == $(for rank in 0 1 2; do for start in 0 1 2 3; do echo "$rank 3 $start 3"; done; done) ]] || failed 'ranks'
[[ $(sort -u job.1 | wc -l) -eq 4 ]] || failed 'two starts could meet'
says 'starts again, 1 of 3, with 3 ranks'
says 'starts again, 3 of 3, with 3 ranks'
[[ $(grep -c 'ended with exit code 5' err) -eq 3 ]] || failed 'not each failure is named'
# The last one's failure is the job's.
rm -f ranks
ends 6 -n 2 --max-restarts 2 --grace 0.3 sh -c "$program; $together"'; test $RANK -ne 1 || exit $((4 + TORCHELASTIC_RESTART_COUNT))'
[[ $(wc -l <ranks) -eq 6 ]] || failed 'not three starts'
says 'is not started again: --max-restarts is 2'
# What cannot be started is not tried again, nor what a signal from outside ended.
ends 127 -n 2 --max-restarts 3 no-such-program-anywhere
[[ $(wc -l <err) -eq 1 ]] || failed 'tried again'
rm -f ranks
env --default-signal "$peal_run" -n 2 --max-restarts 3 --grace 0.3 sh -c 'echo $RANK >>ranks; exec sleep 1000' 2>err &
job=$!
until_true lines_in 2 ranks
kill -TERM "$job"
status=0
wait "$job" || status=$?
[[ $status -eq 143 && $(wc -l <ranks) -eq 2 ]] || failed "exit status $status, expected 143"

# Elastic: without those that failed by themselves, and with all others.
rm -f ranks
ends 0 -n 4 --elastic --grace 20 sh -c "$program"'
  test $WORLD_SIZE -gt 2 || exit 0
  echo $$ >process.$RANK.of.$WORLD_SIZE
  test $RANK -ne 1 || { kill -KILL $$; }
  lost=process.1.of.$WORLD_SIZE
  until test -s $lost && test ! -e /proc/$(cat $lost); do sleep 0.02; done
  exit 1'
[[ $(cut -d ' ' -f 1,2 ranks | sort) == $'0 2\n0 3\n0 4\n1 2\n1 3\n1 4\n2 3\n2 4\n3 4' ]] || failed 'ranks that are left'
says 'starts again, 1 of 3, with 3 ranks'
says 'starts again, 2 of 3, with 2 ranks'
# abort(), as after an Error that nobody catches, is no failure of its own once another rank has failed; nor is SIGPIPE.
rm -f ranks process.*
ends 0 -n 3 --elastic --max-restarts 1 --grace 20 sh -c "$program"'
  test $WORLD_SIZE -eq 3 || exit 0
  ulimit -c 0
  echo $$ >process.$RANK
  test $RANK -ne 1 || { kill -KILL $$; }
  until test -s process.1 && test ! -e /proc/$(cat process.1); do sleep 0.02; done
  if test $RANK -eq 0; then kill -ABRT $$; else kill -PIPE $$; fi'
says 'starts again, 1 of 1, with 2 ranks'
[[ $(grep -c 'was ended by' err) -eq 1 ]] || failed 'ranks that ended since are named'
# Nor is an exit code that is seen before the end by a signal that it came of.
for hosts in '' 'localhost:3'; do
  rm -f ranks process.*
  ends 0 -n 3 ${hosts:+--hosts "$hosts"} --elastic --max-restarts 1 --grace 20 sh -c "$program"'
    test $WORLD_SIZE -eq 3 || exit 0
    echo $$ >process.$RANK
    test $RANK -ne 0 || exit 1
    until test -s process.0 && test ! -e /proc/$(cat process.0); do sleep 0.02; done
    test $RANK -ne 1 || { sleep 0.1; kill -KILL $$; }
    until test -s process.1 && test ! -e /proc/$(cat process.1); do sleep 0.02; done
    exit 1'
  says 'starts again, 1 of 1, with 2 ranks'
done
# On one machine without its GPU, where each has one of its own.
for gpus in 4,5,6,7 4,5; do
  rm -f ranks
  ends 0 -n 3 --gpus $gpus --elastic --max-restarts 1 --grace 0.3 sh -c 'echo "$RANK of $WORLD_SIZE $CUDA_VISIBLE_DEVICES" >>ranks
    test $WORLD_SIZE -ne 3 || { until test "$(cat ranks | wc -l)" -eq 3; do sleep 0.02; done; test $RANK -ne 1 || exit 3; }'
  left=$([[ $gpus == 4,5 ]] && echo 4,5 || echo 4,6,7)
  [[ $(tail -n 2 ranks | sort) == "0 of 2 $left"$'\n'"1 of 2 $left" ]] || failed "GPUs: $(cat ranks)"
done
ends 134 -n 2 --grace 0.3 sh -c 'ulimit -c 0; test $RANK -ne 1 || kill -ABRT $$'
ends 3 -n 3 --elastic --min-ranks 3 --max-restarts 5 --grace 0.3 sh -c 'test $RANK -ne 1 || exit 3'
says '2 ranks are left, and --min-ranks is 3'
ends 4 -n 2 --elastic sh -c 'test $RANK -ne $((WORLD_SIZE - 1)) || exit 4'
says 'is not started again: --max-restarts is 1'
ends 3 -n 2 --min-ranks 1 --grace 0.3 sh -c 'test $RANK -ne 1 || exit 3'
! grep -q 'again' err || failed 'started again, and nobody asked for it'
}
echo 'jobs start again'
