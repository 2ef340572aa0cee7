#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs a build into an empty prefix (with a space in its path), and builds and runs a small outside project
# against it. Arguments: the build folder, the C++ compiler, the build type.
set -euo pipefail

build=$1 compiler=$2 type=$3
outside=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/outside
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
prefix="$folder/a prefix"
unset DESTDIR

cmake --install "$build" --prefix "$prefix" >"$folder/log" || { cat "$folder/log"; exit 1; }
cp -r "$outside" "$folder/outside"
cmake -S "$folder/outside" -B "$folder/build" -G Ninja -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_BUILD_TYPE="$type" \
  -DCMAKE_PREFIX_PATH="$prefix"
cmake --build "$folder/build" --verbose | tee "$folder/commands"
output=$("$folder/build/outside")
echo "$output"

fail() {
  echo "FAILED: $*"
  exit 1
}
[[ $output == $'sum 21, gradient 2 4 8\nerror: shape of 3' ]] || fail "the outside program printed: $output"
grep -q "a prefix/include" "$folder/commands" || fail "the outside program was built without the installed headers"
! grep -rn --include='*.cmake' -e "$build" "$prefix" || fail "the installed package points into the build folder"
"$prefix/bin/peal-run" --help | grep -q '^usage: peal-run' || fail "peal-run is not installed"
