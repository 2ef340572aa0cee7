#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Each exercise of the book has its answer, and each answer is one of an exercise: a heading `## 3.2` of a page in
# docs/book/answers, or a test case "7.4: ..." in examples/answers. Tried with a missing answer and a stray one first.
#   check_answers.sh ROOT
set -euo pipefail
shopt -s inherit_errexit nullglob

root=$(realpath "${1:?usage: check_answers.sh ROOT}")

# exercises ROOT: `3.2` of each, from the numbered lists below the chapters' heading "Exercises".
exercises() {
  local chapter name
  for chapter in "$1"/docs/book/[0-9]*.md; do
    name=${chapter##*/}
    awk -v chapter="$((10#${name%%-*}))" '/^## / {list = $0 == "## Exercises"}
      list && /^[0-9]+\. / {print chapter "." $1 + 0}' "$chapter"
  done | sort -V
}

answers() {
  cat "$1"/docs/book/answers/[0-9]*.md "$1"/examples/answers/*.cpp /dev/null |
    grep -oE '^## [0-9]+\.[0-9]+$|"[0-9]+\.[0-9]+:' | tr -d '#": ' | sort -uV
}

# differences ROOT: a line for each exercise without an answer, and the other way round.
differences() {
  comm -23 <(exercises "$1" | sort) <(answers "$1" | sort) | sed 's/^/no answer to exercise /'
  comm -13 <(exercises "$1" | sort) <(answers "$1" | sort) | sed 's/^/no such exercise, but an answer: /'
}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder"/{docs/book/answers,examples/answers}
printf '## Exercises\n\n1. One.\n2. Two.\n3. Three.\n\n## More\n\n4. No exercise.\n' >"$folder/docs/book/09-trial.md"
printf '## 9.1\n\n## 9.5\n' >"$folder/docs/book/answers/09-trial.md"
printf 'TEST_CASE("9.3: three") {}\n' >"$folder/examples/answers/09_trial.cpp"
found=$(differences "$folder")
[[ $found == $'no answer to exercise 9.2\nno such exercise, but an answer: 9.5' ]] || {
  printf 'FAILED: of a missing answer and a stray one this was found:\n%s\n' "$found"
  exit 1
}

wrong=$(differences "$root")
count=$(exercises "$root" | wc -l)
printf '%s%d exercises\n' "${wrong:+$wrong$'\n'}" "$count"
[[ -z $wrong && $count -gt 0 ]]
