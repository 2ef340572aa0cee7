#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2034
# What the tests of peal-run share; each sources it, and is then in an empty folder of its own.
peal_run=${1:?usage: NAME_test.sh PEAL_RUN PROGRAM (tests/mpi/endings.cpp)} program=${2-}
# shellcheck source=tests/segments.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../segments.sh"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit
failed() {
  echo "FAILED: $*"
  head -c 2000 out err 2>/dev/null
  exit 1
}
# ends STATUS ARGUMENTS...: peal-run with these, and quickly; out and err have what came.
ends() {
  local expected=$1 status=0
  shift
  timeout 60 "$peal_run" "$@" >out 2>err || status=$?
  [[ $status -eq $expected ]] || failed "peal-run $*: exit status $status, expected $expected"
}
# says TEXT: on stderr.
says() { grep -qF -e "$1" err || failed "it does not say: $1"; }
silent() { [[ ! -s err ]] || failed "it says something"; }
# dead PROCESS: it has ended, if nobody has asked how, too
dead() { [[ ! -e /proc/$1 ]] || grep -q '^State:[[:space:]]*Z' "/proc/$1/status"; }
# gone FILE: none of the processes that stand in it is there any more.
gone() {
  local process
  while read -r process; do
    [[ ! -e /proc/$process ]] || failed "process $process is still there: $(tr '\0' ' ' <"/proc/$process/cmdline")"
  done <"$1"
}
# until_true COMMAND...: it becomes so within half a minute.
until_true() {
  local try
  for ((try = 0; try < 600; ++try)); do
    ! "$@" 2>/dev/null || return 0
    sleep 0.05
  done
  failed "it does not come: $*"
}
lines_in() { [[ $(cat "${@:2}" | wc -l) -ge $1 ]]; }
