#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs a build into an empty prefix (with a space in its path), and builds and runs a small outside project
# against it; before that, an installation of what is not built. Arguments: the build folder, the C++ compiler, the build type.
set -euo pipefail

build=$1 compiler=$2 type=$3
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
prefix="$folder/a prefix"
unset DESTDIR

# A build folder where nothing is built is turned away, and nothing is left behind.
fail() {
  echo "FAILED: $*"
  exit 1
}
cmake -S "$here/../.." -B "$folder/not built" -G Ninja -DCMAKE_CXX_COMPILER="$compiler" -DPEAL_TESTS=OFF \
  -DPEAL_MPI=OFF --log-level=WARNING
output=$(cmake --install "$folder/not built" --prefix "$prefix" 2>&1) && fail "an installation of what is not built"
[[ $output == *'peal is not built'*'cmake --build'* ]] || fail "the installation of what is not built said: $output"
[[ ! -e $prefix ]] || fail "what is not built was installed: $(find "$prefix" | head)"

cmake --install "$build" --prefix "$prefix" >"$folder/log" || { cat "$folder/log"; exit 1; }
cp -r "$here/outside" "$folder/outside"
cmake -S "$folder/outside" -B "$folder/build" -G Ninja -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_BUILD_TYPE="$type" \
  -DCMAKE_PREFIX_PATH="$prefix"
cmake --build "$folder/build" --verbose | tee "$folder/commands"
output=$("$folder/build/outside")
echo "$output"
[[ $output == $'1 thread, 1 hook, 1 leaf, defined 1\nvalue, accuracy 0.5\nsum 21, gradient 2 4 8\nerror: shape of 3' ]] || fail "the outside program printed: $output"
grep -q "a prefix/include" "$folder/commands" || fail "the outside program was built without the installed headers"
! grep -rn --include='*.cmake' -e "$build" "$prefix" || fail "the installed package points into the build folder"
"$prefix/bin/peal-mpirun" --help | grep -q '^usage: peal-mpirun' || fail "peal-mpirun is not installed"
[[ $("$prefix/bin/peal-run" -n 2 --tag sh -c 'echo rank' | sort) == $'[0] rank\n[1] rank' ]] || fail "peal-run is not installed"
[[ $(PEAL_CONFIG=none PEAL_LOG=warning "$prefix/bin/peal" launch -n 2 --tag sh -c 'echo rank' | sort) == $'[0] rank\n[1] rank' ]] ||
  fail "peal is not installed"
[[ $("$prefix/bin/peal" estimate-memory BasicNet) == *18.31* ]] || fail "peal-estimate-memory is not installed"
[[ $(PEAL_CONFIG=none "$prefix/bin/peal" test -n 2) == *'Test is a success!'* ]] || fail "peal test is not installed"
[[ $("$prefix/bin/peal" schedule list) == *all_reduce* ]] || fail "peal-schedule is not installed"

# What is public, printed; and nothing of the rooms inside, but what
# an optimizer's step and a reduction are named by, and what a group counts.
cd "$prefix/include/peal"
headers=$(find . -name '*.h*' -printf '%P\n' | LC_ALL=C sort)
printf '%d headers are public:\n%s\n' "$(wc -l <<<"$headers")" "$headers"
inside=$(grep -E '^(autograd/kernels|comm/(control|engine|record|reduce|transport)|launch/tools|tests)/|/group_body|/cuda/' <<<"$headers" |
  grep -vxE 'autograd/kernels/steps[.]h|comm/(reduce/reduce_op|record/operation_counters)[.]h' || true)
[[ -z $inside ]] || fail "these are no faces, and are installed: $inside"
for face in peal.h comm/comm.h data/data.h nn/nn.h; do
  grep -qx "$face" <<<"$headers" || fail "there is no <peal/$face>"
done
