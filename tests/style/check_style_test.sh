#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The checker itself: a small clean tree passes, and each violation planted in it alone is found.
set -euo pipefail

check=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/check_style.sh
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
put autograd/core/device.cpp '<cuda_runtime.h>'
put autograd/ops/matmul.h '<peal/autograd/core/tensor.h>'
put autograd/kernels/cuda/map.cu '<cuda_bf16.h>'
put comm/schedule/schedule.h '<span>'
put comm/verify/verify.cpp '<peal/comm/schedule/schedule.h>' '<algorithm>'
put comm/algorithms/ring.h '<peal/comm/schedule/schedule.h>'
header='' put autograd/kernels/cpu/loops_body.h
put comm/engine/engine.h '<peal/comm/algorithms/ring.h>' '<peal/autograd/core/tensor.h>' '<unistd.h>'
put comm/reduce/cuda/sum.cu '<cuda_fp16.h>'
put comm/transport/nccl/transport.cpp '<nccl.h>'
put comm/transport/mpi/transport.cpp '<mpi.h>'
put data/sampler.h '<peal/autograd/core/tensor.h>'
put nn/module.h '<peal/autograd/ops/matmul.h>' '<peal/comm/engine/engine.h>'
put launch/rank.h '<peal/nn/module.h>' '<peal/data/sampler.h>'
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
  [[ $rc -eq 1 && $output == "$file:"*"$rule"* && $(wc -l <<<"$output") -eq 1 ]] ||
    report "$file with $*: expected '$rule', exit status $rc: $output"
  if [[ -n $kept ]]; then printf '%s\n' "$kept" >"$file"; else rm "$file"; fi
}

may='this file may not include'
found "$may" autograd/core/storage.h '<peal/autograd/ops/matmul.h>'
found "$may" autograd/ops/relu.h '<peal/comm/engine/engine.h>'
found "$may" comm/group/work.h '<peal/autograd/ops/matmul.h>'
found "$may" comm/control/control.h '<peal/nn/module.h>'
found "$may" comm/schedule/schedule.h '<peal/comm/engine/engine.h>'
found "$may" comm/draw/draw.cpp '<peal/autograd/core/tensor.h>'
found "$may" comm/algorithms/tree.h '<peal/comm/engine/engine.h>'
found "$may" data/loader.h '<peal/comm/engine/engine.h>'
found "$may" data/loader.h '<peal/autograd/ops/matmul.h>'
found "$may" nn/loss.h '<peal/data/sampler.h>'
found "$may" nn/loss.h '<peal/launch/rank.h>'
found "$may" examples/two.cpp '<peal/tests/run.sh>'
found 'standard library alone' comm/simulate/simulate.h '<fmt/core.h>'
found 'standard library alone' comm/algorithms/tree.h '<unistd.h>'
found 'may not see CUDA' autograd/ops/relu.h '<cuda_runtime.h>'
found 'may not see CUDA' comm/engine/engine.h '<nccl.h>'
found 'may not see CUDA' nn/loss.h '<cublasLt.h>'
found 'may not see CUDA' comm/transport/shm/transport.cpp '<cuda.h>'
found 'may not see MPI' comm/engine/engine.h '<mpi.h>'
found 'may not see MPI' launch/trainer.cpp '<mpi.h>'
found 'is spelled <peal/folder/file.h>' nn/loss.h '"module.h"'
found 'is spelled <peal/nn/module.h>' launch/rank.h '<nn/module.h>'
found 'by name' tests/comm/work_test.cpp '"../../comm/engine/engine.h"'
found 'no such file' launch/rank.h '<peal/nn/modul.h>'
found 'named for what is inside' comm/utils.h
found 'named for what is inside' nn/string_util.cpp
found 'named for what is inside' data/helpers.h
found 'named for what is inside' autograd/core/detail.h

licence='// Copyright' found 'the first line is the licence' nn/loss.h
header='' found 'a header has #pragma once' nn/loss.h
printf '#!/bin/sh\n' >tests/other.sh
output=$("$check" . 2>/dev/null) && report 'a script without a licence is not found'
[[ $output == 'tests/other.sh:2: '* ]] || report "a script without a licence: $output"

echo "$failures failures"
[[ $failures -eq 0 ]]
