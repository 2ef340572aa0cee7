#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# peal test: a line of each check and a success at 1 to 4 ranks; and status 1 with the cause where something is wrong.
set -euo pipefail
# shellcheck source=tests/launch/peal/frame.sh
source "$(dirname "$0")/frame.sh" "$@"

for n in 1 2 3 4; do
  ends 0 test -n "$n"
  [[ $(tail -n 1 out) == 'Test is a success! You are ready for your distributed training!' ]] || failed 'no success'
  for check in 'collectives between threads' samplers 'training by '{ddp,zero1,zero2,fsdp} resuming; do
    prints "ok  $check: "
  done
  [[ $n == 1 ]] || prints 'ok  collectives over TCP: '
  [[ $(wc -l <err) == 1 ]] || failed 'more than the line of the launch'
done

# Where there is no folder to save to, a rank ends early, or the words are none of it.
mkdir tmp
TMPDIR="$PWD/nowhere" ends 1 test -n 2
says 'peal test: resuming: '
! grep -q success out || failed 'a success'
PEAL_ALGO=all_reduce=rung ends 1 test -n 2
says 'rung'
# A device that is not there; and what would hide a rank that has failed.
CUDA_VISIBLE_DEVICES='' PEAL_DEVICE=cuda ends 1 test -n 2
says 'no CUDA device is here'
for once in '--max-restarts 1' --elastic --keep-survivors; do
  # shellcheck disable=SC2086
  ends 2 test -n 2 $once
  says 'what fails is to be seen'
done

# What ranks have saved goes with them, however they end, and by whatever it does.
nothing_left() { ! compgen -G 'tmp/peal-test-*' >/dev/null; }
for signal in TERM KILL; do
  TMPDIR="$PWD/tmp" "$peal_run" test -n 2 >out 2>err &
  until_true grep -q '^ok  ' out
  compgen -G 'tmp/peal-test-*' >/dev/null || failed 'no folder for the ranks'
  kill -$signal $!
  status=0
  wait $! || status=$?
  if [[ $signal == TERM ]]; then
    [[ $status == 143 ]] || failed "exit status $status after SIGTERM, expected 143"
    nothing_left || failed 'a folder is left'
  else
    [[ $status == 137 ]] || failed "exit status $status after SIGKILL, expected 137"
    until_true nothing_left
  fi
done

# mpirun ends with it, and its status is its own.
if "$peal_run" env | grep -q 'MPI yes'; then
  mkdir bin
  # shellcheck disable=SC2016
  printf '#!/bin/sh\n[ "$1" != --version ] || exit 0\necho $$ >"%s/mpirun.pid"\nexec sleep 100\n' "$PWD" >bin/mpirun
  chmod +x bin/mpirun
  PATH="$PWD/bin:$PATH" "$peal_run" test -n 1 >out 2>err &
  until_true test -s mpirun.pid
  kill -TERM $!
  status=0
  wait $! || status=$?
  [[ $status == 143 ]] || failed "exit status $status after SIGTERM, expected 143"
  gone mpirun.pid
fi
ends 2 test -n 2 what
says "what is 'what'?"
ends 0 test --help
prints 'peal test [options]'
echo 'peal tests'
