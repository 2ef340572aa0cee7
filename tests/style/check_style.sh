#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Holds the rules of the tree that a compiler cannot: who may include whom (rooms.txt), where CUDA and MPI may be seen,
# how an include is spelled, the licence line, and names. Prints one line a violation, `file:line: rule`, and fails when
# there is any.
#   check_style.sh ROOT [--figures [FOLDER]]   --figures: of the graph of includes instead, whole or of a folder
set -euo pipefail
shopt -s inherit_errexit

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "${1:?usage: check_style.sh ROOT}"
folders=()
for folder in autograd comm nn data launch bench examples tests peal.h; do
  [[ ! -e $folder ]] || folders+=("$folder")
done

sources() { find "$@" -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print0 | sort -z; }
if [[ ${2-} == --figures ]]; then
  [[ -z ${3-} ]] || folders=("$3")
  sources "${folders[@]}" | xargs -0 awk -v figures=1 -f "$here/rooms.awk" "$here/rooms.txt"
  exit
fi

violations=$(
  find "${folders[@]}" \( -name 'util' -o -name 'utils*' -o -name '*_utils*' -o -name '*_util.*' -o -name 'helper*' \
    -o -name '*_helper*' -o -name 'detail' -o -name 'detail.*' -o -name 'misc*' \) \
    -printf '%p:1: a file or folder is named for what is inside it\n'

  sources "${folders[@]}" | xargs -0 --no-run-if-empty awk -f "$here/includes.awk"
  sources "${folders[@]}" | xargs -0 awk -f "$here/rooms.awk" "$here/rooms.txt"

  # A header without it breaks where two others include it. A *_body.h is there to be included several times.
  find "${folders[@]}" -type f \( -name '*.h' -o -name '*.cuh' \) ! -name '*_body.h' -print0 |
    xargs -0 --no-run-if-empty grep -L '^#pragma once$' | sed 's/$/:1: a header has #pragma once/' || true

  # Scripts have their first line for the shell, so their licence is in the second.
  find "${folders[@]}" -type f \( -name '*.sh' -o -path '*/tools/*' ! -name '*.*' \) -print0 |
    while IFS= read -r -d '' script; do
      sed -n 2p "$script" | grep -q '^# SPDX-License-Identifier: Apache-2.0$' ||
        echo "$script:2: the second line of a script is the licence: # SPDX-License-Identifier: Apache-2.0"
    done
)

if [[ -n $violations ]]; then
  printf '%s\n' "$violations"
  printf '%d violations\n' "$(wc -l <<<"$violations")" >&2
  exit 1
fi
