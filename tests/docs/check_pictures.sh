#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The pictures of the documents are what their schedules look like today. Those that a command of the book draws are
# check_book.sh's; one that nothing draws is a fault.
#   check_pictures.sh DRAW_PICTURES FRESH COMMITTED
set -euo pipefail

draw=$1 fresh=$2 committed=$3
rm -rf "$fresh"
"$draw" "$fresh"
same() {
  local picture
  for picture in "$fresh"/*; do cmp "$picture" "$committed/${picture##*/}" || return; done
  for picture in "$committed"/*; do
    [[ -e $fresh/${picture##*/} ]] || grep -qrE -- "^build/.* docs/pictures/${picture##*/}( |\$)" "$committed/../book" || {
      echo "nothing draws $picture"
      return 1
    }
  done
}
same >&2 || {
  echo "docs/pictures is not what the schedules look like; if they were meant to change: $draw '$committed'" >&2
  exit 1
}
