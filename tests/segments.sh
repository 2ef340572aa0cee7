#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shared-memory segments that a test leaves behind; a test sources it before it starts anything, and asks remaining_segments at
# its end, which prints those that are new and stay. Those of jobs beside it come and go, as tests/segments.h has it.
segments() { find /dev/shm -maxdepth 1 -name 'peal-*' | sort; }
segments_before=$(segments)
remaining_segments() {
  local name look
  for name in $(comm -13 <(echo "$segments_before") <(segments)); do
    for ((look = 0; look < 50; ++look)); do
      [[ -e $name ]] || continue 2
      sleep 0.1
    done
    echo "$name"
  done
}
