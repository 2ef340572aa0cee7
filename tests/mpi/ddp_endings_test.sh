#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How a training over MPI ends where one rank does not do as the others: what it threw is told once, by itself, and
# the other two ways name the rank, the step, and what is missing.
#   ddp_endings_test.sh PEAL_RUN PROGRAM RANKS
set -euo pipefail

usage='usage: ddp_endings_test.sh PEAL_RUN PROGRAM RANKS'
launcher=${1:?$usage} program=${2:?$usage} ranks=${3:?$usage}
last=$((ranks - 1))
log=$(mktemp)
trap 'rm -f "$log"' EXIT

fail() { echo "ddp_endings_test: $how: $*" >&2; cat "$log" >&2; exit 1; }
run() {
  how=$1
  local status=0
  timeout --foreground 60 "$launcher" -n "$ranks" "$program" "$how" >"$log" 2>&1 || status=$?
  [[ $status -ne 124 ]] || fail 'it has not ended after 60 s'
  [[ $status -ne 0 ]] || fail 'it ended with 0'
}
once() {
  [[ $(grep -c 'the fifth batch is torn' "$log") -eq 1 ]] || fail 'the text was not told once'
}

run throw
once
[[ $(grep -m1 '^\[rank' "$log") == "[rank $last] "*'the fifth batch is torn' ]] || fail "it was not rank $last who told it first"
run tell
once
[[ $(grep -m1 '^\[rank' "$log") == "[rank $last] "*"[ddp] rank $last: the fifth batch is torn" ]] ||
  fail "it was not rank $last who told it first"
run all
once
run leave
grep -q "rank $last is in barrier .*the end of its program" "$log" || fail "nobody said that rank $last has left"
grep -q 'step 6' "$log" || fail 'nobody named step 6'
run skip
grep -q 'step 5, forwards without a backward: 1' "$log" || fail 'nobody said that a backward is missing in step 5'
grep -q "rank $last" "$log" || fail "nobody named rank $last"
echo "$ranks ranks ended as they should"
