#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A /dev/shm that is too small or cannot be written, for real: in a mount namespace of the test's own. The job goes on by
# messages, its sums are right, and a warning says what to do.
#   no_shared_memory_test.sh PEAL_RUN PROGRAM
set -euo pipefail

launcher=${1:?usage: no_shared_memory_test.sh PEAL_RUN PROGRAM} program=${2:?}
export OMPI_MCA_btl=self,tcp PEAL_LOG=warning  # MPI needs /dev/shm as well, and says so in words of its own
apart=(unshare -m)
"${apart[@]}" mount -t tmpfs none /dev/shm 2>/dev/null || apart=(unshare -rm)
"${apart[@]}" mount -t tmpfs none /dev/shm 2>/dev/null || {
  echo 'SKIPPED: this user may not mount anything, in a namespace of its own either'
  exit 77
}

# try OPTIONS EXPECTED RANKS: of mount, and of the warning
try() {
  local log
  log=$("${apart[@]}" bash -c '
    mount -t tmpfs -o "$1" none /dev/shm && shift
    timeout --foreground 60 "$@" 2>&1 || echo "status $?"
    find /dev/shm -mindepth 1 -name "*peal*"' - "$1" "$launcher" -n "$3" "$program" sums)
  echo "--- mount -o $1, $3 ranks"
  echo "$log"
  grep -q "^sums of $3 ranks are right\$" <<<"$log" || { echo 'FAILED: the sums are not there'; exit 1; }
  grep -q "$2" <<<"$log" || { echo "FAILED: expected '$2'"; exit 1; }
  ! grep -q 'status\|^/dev/shm' <<<"$log" || { echo 'FAILED: it did not end well, or something remains'; exit 1; }
}
advice='give /dev/shm more room (mount -o remount,size=64M /dev/shm, or docker --shm-size=64m)'
# Too little for the first segment; for the collectives' rooms; for the buffers of allocate() alone.
try size=4k "(No space left on device); $advice" 2
try size=1m "shared memory for collectives: no shared memory of [0-9]* bytes .*(No space left on device); $advice" 3
try size=3m "memory for collectives: no shared memory of [0-9]* bytes .*(No space left on device); $advice" 3
try size=1m,ro '(Read-only file system); let this user write to /dev/shm (mount -o remount,rw,mode=1777 /dev/shm)' 2
