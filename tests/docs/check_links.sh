#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every file and heading that a document names is there: the links of README.md and docs/, and what they write
# as code that begins like a path of the tree (`comm/schedule/schedule.h`, `tests/<area>` aside).
#   check_links.sh ROOT
set -euo pipefail
shopt -s inherit_errexit

cd "${1:?usage: check_links.sh ROOT}"
failures=0 checked=0
report() {
  echo "$1"
  failures=$((failures + 1))
}

# The anchors of a document's headings, as GitHub makes them.
anchors() {
  sed -n 's/^##* //p' "$1" | tr '[:upper:]' '[:lower:]' | sed 's/[^a-z0-9 _-]//g; s/ /-/g'
}

while IFS= read -r document; do
  folder=$(dirname "$document")
  # Prose alone: blocks of code are the compiler's and run_commands.sh's.
  prose=$(awk '/^```/ {code = !code; next} !code' "$document")
  while IFS= read -r target; do
    [[ -n $target && $target != http*://* ]] || continue
    checked=$((checked + 1))
    file=${target%%#*} anchor=''
    [[ $target != *'#'* ]] || anchor=${target#*#}
    if [[ -n $file ]]; then file=$folder/$file; else file=$document; fi
    if [[ ! -e $file ]]; then
      report "$document: a link to $target: no such file"
    elif [[ -n $anchor ]] && ! grep -qxF -e "$anchor" <<<"$(anchors "$file")"; then
      report "$document: a link to $target: no such heading"
    fi
  done < <(sed 's/`[^`]*`//g' <<<"$prose" | grep -oE '\]\([^)]*\)' | sed 's/^](//; s/)$//' || true)
  while IFS= read -r path; do
    [[ -n $path ]] || continue
    checked=$((checked + 1))
    compgen -G "$path" >/dev/null || report "$document: \`$path\`: no such file"
  done < <(grep -oE '`(autograd|comm|nn|data|launch|bench|tests|examples|cmake|docs|\.ci)/[^` ]*`' <<<"$prose" |
    tr -d '`' | grep -v '[A-Z<]\{2,\}\|<' || true)
done < <(find README.md docs -name '*.md' | sort)

echo "$checked links and paths, $failures wrong"
[[ $checked -gt 0 && $failures -eq 0 ]]
