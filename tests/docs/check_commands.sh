#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every command that README.md, docs/HACKING.md and docs/book/README.md show in a ```sh block does what it says. Cheap ones run, with the
# build at hand in place of build/release; of the others it is checked that programs, presets, targets, options and
# labels exist. A command that this script doesn't know is a failure: teach it, or show another.
#   check_commands.sh ROOT BUILD
set -euo pipefail
shopt -s inherit_errexit

usage='usage: check_commands.sh ROOT BUILD'
cd "${1:?$usage}"
build=${2:?$usage}

fail() {
  echo "  $*"
  return 1
}

# script FILE OPTION...: a program of the tree, with these options among what it describes.
script() {
  local file=$1 option
  shift
  [[ -x $file ]] || fail "$file is not an executable file" || return
  bash -n "$file" || return
  for option; do
    [[ $option != --* ]] || grep -q -e "${option%%=*}" "$file" || fail "$file knows no $option" || return
  done
}

# helps COMMAND...: answers --help with 0.
helps() { "$@" --help >/dev/null 2>&1 || fail "$* --help: exit status $?"; }

preset() {
  cmake --list-presets="$1" | grep -qF "\"$2\"" || fail "there is no $1 preset $2"
}

# A program that the example or test of this build has made, from its path in build/release.
program() {
  local path=$build/${1#build/release/}
  [[ -x $path ]] || fail "$1 is not built" || return
  echo "$path"
}

# targets NAME...: something makes each. Read off the sources: a build that is asked might begin to build.
targets() {
  local name
  for name; do
    grep -rqE --include=CMakeLists.txt --include='*.cmake' "(add_executable|add_custom_target|peal_[a-z]+)\\($name([ )]|$)" . ||
      fail "there is no target $name" || return
  done
}

# ctest_options OPTION...: -L and -R find tests.
ctest_options() {
  local count
  [[ " $* " == *' -L '* || " $* " == *' -R '* ]] || return 0
  count=$(ctest --test-dir "$build" -N "$@" | sed -n 's/^Total Tests: //p')
  [[ ${count:-0} -gt 0 ]] || fail "ctest $*: no test"
}

# launched ARGUMENTS...: peal-run with a program of the build. The first examples are quick; of a training it is
# looked whether it knows its options.
launched() {
  local arguments=() binary='' argument
  [[ $1 != --show ]] || shift
  for argument; do
    if [[ $argument == build/release/* ]]; then
      binary=$(program "$argument") || { echo "$binary"; return 1; }
      argument=$binary
    elif [[ -n $binary && $argument == --* ]]; then
      "$binary" --help | grep -q -e "${argument%%=*}" || fail "$binary knows no $argument" || return
    fi
    arguments+=("$argument")
  done
  case $binary in
    */05_train_mnist) launch/tools/peal-run --show "${arguments[@]}" >/dev/null ;;
    *) launch/tools/peal-run "${arguments[@]}" ;;
  esac
}

# known WORD...: checks one command.
known() {
  case $* in
    launch/quickstart.sh) script "$@" && helps "$1" ;;
    tests/run.sh*)
      script "$@" && helps "$1" || return
      shift
      if [[ ${1-} == --preset ]]; then
        preset configure "$2" && preset build "$2" || return
        shift 2
      fi
      ctest_options "$@"
      ;;
    .ci/run | 'launch/install_dependencies.sh --dev' | tests/style/check_style.sh\ .* | 'tests/fuzz/run.sh build/fuzz '*) script "$@" ;;
    'cmake --preset '*) preset configure "$3" ;;
    'cmake --build --preset '*)
      preset build "$4" || return
      [[ ${5-} != --target ]] || targets "${@:6}"
      ;;
    'cmake --install build/release --prefix '*)
      [[ $# -eq 5 && -f $build/cmake_install.cmake ]] || fail "there is nothing to install" ;;
    'ctest --test-dir build/release '*) ctest_options "${@:4}" ;;
    launch/tools/peal-run\ *) launched "${@:2}" ;;
    build/release/*)
      program "$1" >/dev/null || { program "$1"; return 1; }
      [[ $2 != docs/pictures ]] || [[ -d $2 ]]
      ;;
    'git ls-files '*' | xargs -0 clang-format -i') grep -q 'clang-format' .ci/run || fail ".ci/run looks at no format" ;;
    *) fail "tests/docs/check_commands.sh does not know this command" ;;
  esac
}

# The lines of the ```sh blocks, without comments.
commands() {
  awk '/^```sh$/ {on = 1; next} /^```/ {on = 0} on' "$@" | sed 's/ *#.*//; /^ *$/d'
}

failures=0 count=0
while IFS= read -r line; do
  count=$((count + 1))
  words=() settings=()
  read -ra words <<<"$line"
  while [[ ${words[0]} == [A-Z]*=* ]]; do
    settings+=("${words[0]}")
    words=("${words[@]:1}")
  done
  output=$(
    for setting in ${settings[@]+"${settings[@]}"}; do export "${setting?}"; done
    known "${words[@]}" 2>&1 </dev/null
  ) || {
    printf 'FAILED: %s\n%s\n' "$line" "$output"
    failures=$((failures + 1))
  }
done < <(commands README.md docs/HACKING.md docs/book/README.md)

echo "$count commands, $failures wrong"
[[ $count -gt 0 && $failures -eq 0 ]]
