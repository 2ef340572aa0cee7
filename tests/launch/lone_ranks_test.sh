#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ranks that nobody joins: the program says so once a job, and neither alone nor where there is a Job.
#   lone_ranks_test.sh PEAL_RUN PROGRAM_WITHOUT_JOB PROGRAM_WITH_JOB LONE_PROGRAM
set -euo pipefail

launcher=${1:?usage: lone_ranks_test.sh PEAL_RUN PROGRAM_WITHOUT_JOB PROGRAM_WITH_JOB LONE_PROGRAM}
without=$2 with=$3 lone=$4
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export PEAL_LOG=info
# warns TIMES COMMAND...
warns() {
  local times=$1 found log
  shift
  log=$("$@" 2>&1) || { echo "$log"; echo "FAILED: $*"; exit 1; }
  found=$(grep -c 'warning: 2 ranks were started (OMPI_COMM_WORLD_SIZE), but this program made no launch::Job' <<<"$log" || true)
  [[ $found -eq $times ]] || { echo "$log"; echo "FAILED: expected $times warnings, got $found: $*"; exit 1; }
}
warns 0 "$without"
warns 1 "$launcher" -n 2 "$without"
warns 0 "$launcher" -n 1 "$without"
warns 1 "$launcher" -n 2 "$lone" save "$folder"
warns 1 "$launcher" -n 2 "$lone" load "$folder"
warns 0 "$lone" save "$folder"
warns 0 "$launcher" -n 2 "$with"
PEAL_LOG=error warns 0 "$launcher" -n 2 "$without"
echo 'lone ranks are warned'
