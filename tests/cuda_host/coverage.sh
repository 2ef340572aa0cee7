#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Which CUDA kernels the tests on the host have launched, against docs/cuda_coverage.md: the kernels that there are, and
# for each whether it was launched, must be as the file says (the numbers are those of its last update). Arguments: the
# root of the tree, the library that holds all kernels, the folder that the tests wrote their launches to, and --update
# to write the file.
set -euo pipefail
shopt -s inherit_errexit

usage='usage: coverage.sh ROOT LIBRARY LAUNCHES [--update]'
root=${1:?$usage} library=${2:?$usage} launches=${3:?$usage}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The names that follow __global__ void, over the ends of lines.
find "$root/autograd" "$root/comm" \( -name '*.cu' -o -name '*.cuh' -o -path '*/cuda/*.h' \) -exec cat {} + |
  sed 's,//.*,,' | tr '\n' ' ' | grep -oE '__global__ +void +(__launch_bounds__ *\([^)]*\) *)?[A-Za-z_0-9]+ *\(' |
  sed -E 's/ *\($//; s/.*[ )]//' | sort -u >"$work/kernels"

nm "$library" 2>"$work/errors" | awk '$2 ~ /^[tTwW]$/ && $3 !~ /\./ { print $3 }' | sort -u >"$work/symbols"
c++filt <"$work/symbols" | paste "$work/symbols" - >"$work/named"

# One line a kernel without its element types: its name, how many of its types were launched, of how many, launches.
cat "$launches"/* | awk -v kernels="$work/kernels" -v named="$work/named" '
  function plain(name,   out, token) {
    gsub(/\(anonymous namespace\)::/, "", name)
    gsub(/\([A-Za-z_:]+\)[0-9]+/, "", name)  # a value of an enumeration
    sub(/\(.*/, "", name)
    sub(/^void /, "", name)
    gsub(/[a-z]+::/, "", name)
    gsub(/unsigned |signed |long /, "", name)
    while (match(name, /^[A-Za-z_0-9]+|^./)) {
      token = substr(name, 1, RLENGTH)
      name = substr(name, RLENGTH + 1)
      if (token !~ /^([0-9]+u?l?|float|double|Half|BFloat16|char|short|int|long|bool|unsigned|true|false|In|Out|InOut| )$/)
        out = out token
    }
    while (gsub(/<>|,+>|<,+|,,+|>,+[>]/, "&", out)) {
      before = out
      gsub(/<>/, "", out)
      gsub(/,+>/, ">", out)
      gsub(/<,+/, "<", out)
      gsub(/,,+/, ",", out)
      if (out == before) break
    }
    return out
  }
  BEGIN {
    while ((getline line < kernels) > 0) is_kernel[line] = 1
  }
  { count[$2] += $1 }
  END {
    while ((getline line < named) > 0) {
      tab = index(line, "\t")
      symbol = substr(line, 1, tab - 1)
      name = plain(substr(line, tab + 1))
      base = name
      sub(/<.*/, "", base)
      if (!is_kernel[base]) continue
      ++types[name]
      run[name] += count[symbol] > 0
      total[name] += count[symbol]
    }
    for (name in types) printf "| `%s` | %d of %d | %d |\n", name, run[name], types[name], total[name]
  }' | LC_ALL=C sort >"$work/rows"

{
  cat <<'TEXT'
# What the tests on the host cover of CUDA

The tests of [tests/cuda_host](../tests/cuda_host) compile peal's CUDA sources for the host and launch the kernels there
([HACKING.md](HACKING.md#cuda-on-the-host)). These are all kernels, by name and functor, each with the element types that
were launched, of those that are compiled, and how often. `build/release` has been tested before; then
`tests/cuda_host/coverage.sh . build/release/tests/cuda_host/libcuda_host.a build/release/tests/cuda_host/launches --update`
writes this file, and a test holds the list (not the numbers).

Not covered: whatever happens inside cuBLASLt, cuDNN and NCCL, of which the tests have stand-ins; how long anything takes;
and what is no kernel and needs a driver (`tests/gpu/run.sh` is for those).

| kernel | types launched | launches |
|---|---|---|
TEXT
  cat "$work/rows"
} >"$work/page"

page=$root/docs/cuda_coverage.md
if [[ ${4:-} == --update ]]; then
  cp "$work/page" "$page"
  exit 0
fi
[[ -s $work/rows ]] || { echo "coverage.sh: no kernels found in $library" >&2; exit 1; }
# Name, and whether any type was launched.
essence() { sed -nE 's/^(\| `[^`]*` \|) (0 of )?.*/\1 \2/p' "$1"; }
if ! diff <(essence "$page") <(essence "$work/page"); then
  echo "docs/cuda_coverage.md (<) is not what the tests launched (>); if that is meant, run coverage.sh with --update" >&2
  exit 1
fi
