#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The loops are compiled with several instruction sets. A weak symbol in one of them that is not in the level's
# own namespace could be picked by the linker for a CPU that lacks the instructions.
# usage: symbols_test.sh ARCHIVE LOOPS NAMESPACE, as: libpeal_autograd.a loops peal::cpu, for peal::cpu::avx2 in
# loops_avx2.cpp
set -eu
found=0
for level in avx2 avx512 avx512bf16; do
  object="$2_$level.cpp.o"
  ar t "$1" | grep -q "^$object\$" || continue
  found=1
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  (cd "$work" && ar x "$1" "$object")
  symbols=$(nm -C --defined-only "$work/$object")
  if ! echo "$symbols" | grep -q "$3::$level::"; then
    echo "no symbol of $3::$level in $object: the test looks at the wrong file" >&2
    exit 1
  fi
  leaked=$(echo "$symbols" | grep -E ' [WVTuRD] ' | grep -v "$3::$level::" || true)
  if [ -n "$leaked" ]; then
    echo "$object shares these symbols with files compiled for other CPUs:" >&2
    echo "$leaked" >&2
    exit 1
  fi
  rm -rf "$work"
done
[ "$found" = 1 ] || echo "no wide levels in this build: nothing to check"
