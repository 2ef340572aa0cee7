#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# install_dependencies.sh against stand-ins for Debian's tools. Argument 1: the path of the script.
set -euo pipefail

script=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
bin=$folder/bin
mkdir "$bin"
for tool in bash env sed; do ln -s "$(command -v "$tool")" "$bin/$tool"; done
# stand_in NAME LINE: a program of one shell line.
stand_in() {
  printf '#!/bin/sh\n%s\n' "$2" >"$bin/$1"
  chmod +x "$bin/$1"
}
log=$folder/log
failures=0
# expect WHAT STATUS TEXT LOG arguments...: the exit status, a text printed, and what apt-get was asked for.
expect() {
  local what=$1 status=$2 text=$3 asked=$4 output rc=0
  shift 4
  : >"$log"
  output=$(PATH="$bin" "$script" "$@" 2>&1 </dev/null) || rc=$?
  if [[ $rc -eq $status && $output == *"$text"* && $(<"$log") == "$asked" ]]; then
    echo "passed: $what"
  else
    echo "FAILED: $what: exit status $rc (expected $status), apt-get: '$(<"$log")', output: $output"
    failures=$((failures + 1))
  fi
}

expect 'elsewhere than on Debian the packages are listed' 1 'libopenmpi-dev' ''

stand_in id 'echo 0'
# shellcheck disable=SC2016
stand_in apt-get 'while [ "$1" != update ] && [ "$1" != install ]; do shift; done; echo "$*" >>"'"$log"'"'
stand_in dpkg-query 'echo installed'
expect 'nothing missing, nothing called' 0 'all 15 packages are there' ''
expect 'a developer has seven more' 0 'all 22 packages are there' '' --dev
expect 'an unknown option' 2 'usage:' '' --all

# A package that was removed still has its configuration on record; one never seen is an error.
# shellcheck disable=SC2016
stand_in dpkg-query 'case "$3" in cmake) echo config-files ;; libfmt-dev) exit 1 ;; *) echo installed ;; esac'
expect 'only what is missing is installed' 0 '2 of 15 packages are missing: cmake libfmt-dev' \
  $'update\ninstall --yes --no-install-recommends cmake libfmt-dev'

stand_in id 'echo 1000'
expect 'a user without sudo is told what to ask for' 1 'apt-get install cmake libfmt-dev' ''
stand_in sudo 'echo "a password is required" >&2; exit 1'
expect 'so is one who cannot type a password' 1 'apt-get install cmake libfmt-dev' ''
# shellcheck disable=SC2016
stand_in sudo '[ "$1" = -n ] && exit 0; exec "$@"'
expect 'sudo installs' 0 'apt-get update' $'update\ninstall --yes --no-install-recommends cmake libfmt-dev'
stand_in apt-get 'exit 100'
expect 'the failure of apt-get is a failure' 100 'apt-get update' ''

echo "$failures failures"
[[ $failures -eq 0 ]]
