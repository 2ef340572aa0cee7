#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The chapters of docs/book, and the answers to their exercises, say what is so. Each line of a ```sh block runs, in a folder
# of its own with the build at hand as build/release and the book as docs/book; what it prints is the ```text block that
# follows, and each picture that it draws in docs/pictures is the committed one. A ```cpp block begins with the name of a
# file, as `// comm/schedule/schedule.h`, and its other lines stand in that file. No chapter has more than 300 lines.
# With --update the text blocks and the pictures are written instead.
# --without-devices leaves chapter 15 out, whose programs no build with CUDA has.
#   check_book.sh ROOT BUILD [--update | --without-devices]
set -euo pipefail
shopt -s inherit_errexit nullglob

usage='usage: check_book.sh ROOT BUILD [--update | --without-devices]'
root=$(cd "${1:?$usage}" && pwd)
build=$(cd "${2:?$usage}" && pwd)
update='' left_out=''
case ${3-} in
  '') ;;
  --update) update=yes ;;
  --without-devices) left_out=15-gpus.md ;;
  *) echo "$usage" >&2 && exit 2 ;;
esac

# What the caller has set is not the book's.
unset "${!PEAL_@}"
export PEAL_TUNING=0 PEAL_CONFIG=none PEAL_LOG=info OMP_NUM_THREADS=1

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder"/run/{build,docs/pictures}
ln -s "$build" "$folder/run/build/release"
ln -s "$root/docs/book" "$folder/run/docs/book"

failures=0 commands=0
fault() {
  echo "$chapter:$number: $*"
  failures=$((failures + 1))
}

# runs BLOCK: what its lines print, one after the other, without blanks at the ends of lines and blank lines first.
runs() {
  local line
  while IFS= read -r line; do
    if [[ $line != build/release/* || $line == *[\;\&\|\<\>\$\`]* ]]; then
      echo "not a plain call of a program of build/release: $line"
      continue
    fi
    (cd "$folder/run" && bash -c "$line" 2>&1 </dev/null) || echo "exit status $?"
  done <<<"$1" | sed 's/ *$//' | sed '/./,$!d'
}

# ended LANGUAGE BLOCK: a block of code has ended at line $number. What a ```sh block prints is wanted of the next.
ended() {
  [[ -z $wanted || $1 == text ]] || fault "expected a text block after the commands above, got '$1'"
  case $1 in
    sh)
      commands=$((commands + $(wc -l <<<"$2")))
      output=$(runs "$2")
      wanted=yes
      ;;
    text)
      [[ -z $wanted || $2 == "$output" ]] || {
        fault 'the commands before print something else (< is what the book says):'
        diff <(echo "$2") <(echo "$output") || true
      }
      wanted=''
      ;;
    cpp)
      local file=${2%%$'\n'*}
      file=$root/${file#// }
      if [[ ! -f $file ]]; then
        fault "a block of code does not name its file in a first line"
      elif [[ $(<"$file") != *"${2#*$'\n'}"* ]]; then
        fault "this does not stand in ${file#"$root/"}"
      fi
      ;;
    *) fault "a block of '$1'" ;;
  esac
}

for chapter in "$root"/docs/book/[0-9]*.md "$root"/docs/book/answers/[0-9]*.md; do
  [[ ${chapter##*/} != "$left_out" ]] || continue
  number=0 language='' block='' wanted='' output=''
  fresh=$folder/fresh.md
  : >"$fresh"
  while IFS= read -r line; do
    number=$((number + 1))
    if [[ -z $language && $line == '```'* ]]; then
      language=${line#'```'} block=''
      : "${language:=nothing}"
    elif [[ -n $language && $line == '```' ]]; then
      if [[ $update && $language == text && $wanted ]]; then
        printf '%s\n' "$output" >>"$fresh"
        wanted=''
      else
        [[ ! $update || $language != text ]] || printf '%s\n' "$block" >>"$fresh"
        ended "$language" "$block"
      fi
      language=''
    elif [[ -n $language ]]; then
      block+=${block:+$'\n'}$line
      [[ $language != text ]] || continue
    fi
    echo "$line" >>"$fresh"
  done <"$chapter"
  [[ -z $language ]] || fault 'a block of code does not end'
  [[ -z $wanted ]] || fault 'expected a text block after the last commands'
  [[ $chapter == */answers/* || $number -le 300 ]] || fault 'a chapter has at most 300 lines'
  if [[ $update ]] && ! cmp -s "$fresh" "$chapter"; then cp "$fresh" "$chapter"; fi
done

for picture in "$folder"/run/docs/pictures/*; do
  committed=$root/docs/pictures/${picture##*/}
  if [[ $update ]]; then
    cmp -s "$picture" "$committed" || cp "$picture" "$committed"
  elif ! cmp -s "$picture" "$committed"; then
    echo "docs/pictures/${picture##*/} is not what the book's command draws"
    failures=$((failures + 1))
  fi
done

echo "$commands commands, $failures wrong${left_out:+; LEFT OUT: $left_out}"
[[ $commands -gt 0 && $failures -eq 0 ]] || {
  echo "if what they print was meant to change: tests/docs/check_book.sh ROOT BUILD --update"
  exit 1
}
