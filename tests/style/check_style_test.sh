#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The checker itself: a small clean tree passes, and each violation planted in it alone is found.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
check=$here/check_style.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cd "$tree"
licence='// SPDX-License-Identifier: Apache-2.0'
header=$'#pragma once\n'

# put FILE INCLUDE...: a source file with these includes.
put() {
  local file=$1 include
  mkdir -p "$(dirname "$file")"
  shift
  {
    echo "$licence"
    [[ $file != *.h && $file != *.cuh ]] || printf '%s' "$header"
    for include in "$@"; do echo "#include $include"; done
  } >"$file"
}

put autograd/core/tensor.h '<vector>'
put autograd/core/cuda/device.cpp '<cuda_runtime.h>'
put autograd/ops/matmul.h '<peal/autograd/core/tensor.h>'
put autograd/kernels/cuda/map.cu '<cuda_bf16.h>'
put comm/schedule/schedule.h '<span>'
put comm/verify/verify.cpp '<peal/comm/schedule/schedule.h>' '<algorithm>'
put comm/algorithms/ring.h '<peal/comm/schedule/schedule.h>'
header='' put autograd/kernels/cpu/loops_body.h
put comm/engine/engine.h '<peal/comm/schedule/schedule.h>' '<peal/autograd/core/tensor.h>' '<unistd.h>'
put comm/group/group.h '<peal/comm/engine/engine.h>' '<peal/comm/algorithms/ring.h>'
put comm/transport/nccl/transport.cpp '<nccl.h>'
put comm/transport/mpi/transport.cpp '<mpi.h>'
put data/sampler.h '<peal/autograd/core/tensor.h>'
put nn/module.h '<peal/autograd/ops/matmul.h>'
put nn/parallel/ddp.h '<peal/nn/module.h>' '<peal/comm/group/group.h>'
put launch/rank.h '<peal/autograd/core/tensor.h>'
put launch/training/loop.h '<peal/nn/parallel/ddp.h>' '<peal/data/sampler.h>' '<peal/launch/rank.h>'
put launch/bootstrap.cpp '<mpi.h>'
put examples/one.cpp '<peal/launch/rank.h>'
put tests/comm/engine_test.cpp '"fixture.h"' '<peal/comm/engine/engine.h>'
printf '#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\n' >tests/run.sh

failures=0
report() {
  echo "FAILED: $1"
  failures=$((failures + 1))
}
clean=$("$check" . 2>&1) || report "the clean tree: $clean"

# found RULE FILE INCLUDE...: FILE with these includes is the one violation, and is called so.
found() {
  local rule=$1 file=$2 output rc=0 kept=''
  shift 2
  [[ ! -f $file ]] || kept=$(<"$file")
  put "$file" "$@"
  output=$("$check" . 2>/dev/null) || rc=$?
  output=$(sed '/: a circle of rooms: /d' <<<"$output")  # which an include that runs back up may close as well
  [[ $rc -eq 1 && $output == "$file:"*"$rule"* && $(wc -l <<<"$output") -eq 1 ]] ||
    report "$file with $*: expected '$rule', exit status $rc: $output"
  if [[ -n $kept ]]; then printf '%s\n' "$kept" >"$file"; else rm "$file"; fi
}

found 'autograd/ops stands over autograd/core' autograd/core/storage.h '<peal/autograd/ops/matmul.h>'
found 'comm/engine stands over autograd/ops' autograd/ops/relu.h '<peal/comm/engine/engine.h>'
found 'comm/group does not see autograd/ops' comm/group/work.h '<peal/autograd/ops/matmul.h>'
found 'comm/group stands over comm/engine' comm/engine/operation.h '<peal/comm/group/group.h>'
found 'comm/engine does not see comm/algorithms' comm/engine/operation.h '<peal/comm/algorithms/ring.h>'
found 'comm/engine stands over comm/control' comm/control/control.h '<peal/comm/engine/engine.h>'
found 'comm/engine stands over comm/schedule' comm/schedule/step.h '<peal/comm/engine/engine.h>'
found 'comm/draw does not see autograd/core' comm/draw/draw.cpp '<peal/autograd/core/tensor.h>'
found 'data does not see comm/engine' data/loader.h '<peal/comm/engine/engine.h>'
found 'data does not see autograd/ops' data/loader.h '<peal/autograd/ops/matmul.h>'
found 'nn does not see data' nn/loss.h '<peal/data/sampler.h>'
found 'nn does not see comm/group' nn/loss.h '<peal/comm/group/group.h>'
found 'launch/rank stands over nn' nn/loss.h '<peal/launch/rank.h>'
found 'launch/rank does not see nn' launch/rank.cpp '<peal/nn/module.h>'
found 'launch/training stands over launch' launch/job.h '<peal/launch/training/loop.h>'
found 'tests stands over examples' examples/two.cpp '<peal/tests/run.sh>'
found 'no room of' comm/cellar/store.h '<vector>'
found 'standard library alone' comm/simulate/simulate.h '<fmt/core.h>'
found 'standard library alone' comm/algorithms/tree.h '<unistd.h>'
found 'may not see CUDA' autograd/core/device.h '<cuda_runtime.h>'
found 'may not see CUDA' autograd/ops/relu.h '<cuda_runtime.h>'
found 'may not see CUDA' comm/engine/engine.h '<nccl.h>'
found 'may not see CUDA' nn/loss.h '<cublasLt.h>'
found 'may not see CUDA' comm/transport/shm/transport.cpp '<cuda.h>'
found 'may not see MPI' comm/engine/engine.h '<mpi.h>'
found 'may not see MPI' launch/trainer.cpp '<mpi.h>'
found 'is spelled <peal/folder/file.h>' nn/loss.h '"module.h"'
found 'is spelled <peal/nn/module.h>' launch/rank.h '<nn/module.h>'
found 'by name' tests/comm/work_test.cpp '"../../comm/engine/engine.h"'
found 'no such file' launch/rank.h '<peal/launch/rank_of.h>'
found 'named for what is inside' comm/engine/utils.h
found 'named for what is inside' nn/string_util.cpp
found 'named for what is inside' data/helpers.h
found 'named for what is inside' autograd/core/detail.h

licence='// Copyright' found 'the first line is the licence' nn/loss.h
header='' found 'a header has #pragma once' nn/loss.h
printf '#!/bin/sh\n' >tests/other.sh
output=$("$check" . 2>/dev/null) && report 'a script without a licence is not found'
[[ $output == 'tests/other.sh:2: '* ]] || report "a script without a licence: $output"

rm tests/other.sh

# rooms EXPECTED TABLE: what the rules of rooms say of the tree under a table, its lines parted by ';'.
rooms() {
  local expected=$1 output
  tr ';' '\n' <<<"$2" >rooms.txt
  output=$(find first second -type f | sort | xargs awk -f "$here/rooms.awk" rooms.txt)
  [[ $output == $expected ]] || report "the table $2: expected $expected, got $output"
}
put first/a.h '<peal/second/b.h>'
put first/b.h '<peal/first/a.h>' '<vector>'
put second/b.h
rooms '' 'second:;first: second'
rooms '' 'second:;first: STD;  second'
rooms 'rooms.txt:1: first sees second, which does not stand above it'$'\n''first/a.h:3:*second stands over first' 'first: second;second:'
rooms 'rooms.txt:2: first sees third/, which does not stand above it' 'second:;first: second third/'
rooms 'rooms.txt:1: expected*' 'second;second:;first: second'
rooms 'second/b.h:1: no room of rooms.txt has this file*' 'first:'
rooms '' 'second:;first/a: second;first/b: first/a'
# Circles, of files inside a room and of rooms.
put second/b.h '<peal/second/c.h>'
put second/c.h '<peal/second/d.h>'
put second/d.h '<peal/second/b.h>'
rooms 'second/?.h:1: a circle of files: second/?.h -> second/?.h -> second/?.h -> second/?.h' 'second:;first: second'
put second/b.h
put second/c.h '<peal/first/b.h>'
rm second/d.h
rooms 'second/c.h:3:*first stands over second'$'\n''*: a circle of rooms: *first*second*' 'second:;first: second'
output=$(find first second -type f | xargs awk -v figures=1 -f "$here/rooms.awk" rooms.txt)
[[ $output == '2 rooms, 2 arrows between them, 1 includes that run back up, 1 circles of rooms, 0 of files; the largest'* ]] ||
  report "figures: $output"
rm -r first second

echo "$failures failures"
[[ $failures -eq 0 ]]
