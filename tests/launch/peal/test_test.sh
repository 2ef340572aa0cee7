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
TMPDIR="$PWD/nowhere" ends 1 test -n 2
says 'peal test: resuming: '
! grep -q success out || failed 'a success'
PEAL_ALGO=all_reduce=rung ends 1 test -n 2
says 'rung'
ends 2 test -n 2 what
says "what is 'what'?"
ends 0 test --help
prints 'peal test [options]'
echo 'peal tests'
