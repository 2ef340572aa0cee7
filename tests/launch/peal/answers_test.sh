#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# peal env, estimate-memory, schedule and completion: what they print, and their statuses.
set -euo pipefail
# shellcheck source=tests/launch/peal/frame.sh
source "$(dirname "$0")/frame.sh" "$@"

PEAL_STORE_SECRET=hush PEAL_NODE=here ends 0 env
for name in peal compiler 'built with' CPU 'CPU level' cores memory cgroup /dev/shm 'MPI found' devices variables 'config file'; do
  grep -qE "^$name: +[^ ]" out || failed "nothing of $name"
done
prints 'PEAL_NODE=here'
prints 'oneDNN'
! grep -q hush out || failed 'a secret was printed'

ends 0 estimate-memory BasicNet
grep -qE '^BasicNet +f32 +4\.50 +4\.58 +18\.31$' out || failed 'f32'
grep -qE '^BasicNet +f16 +2\.25 +2\.29 +9\.15$' out || failed 'f16'
ends 0 estimate-memory basicnet ResNet18 --dtypes bf16
grep -qE '^ResNet18 +bf16 +4\.50 +22\.30 ' out || failed 'a second model'
# Per rank of 4: 16 bytes a parameter, 8 + 8/4, 4 + 12/4 and 16/4, where they can be shared out evenly; BasicNet's largest
# layer is nearly all of it, and stays whole with the first three.
ends 0 estimate-memory BasicNet --dtypes f32 --ranks 4 --strategy all
for row in 'ddp +4.58 +4.58 +9.15 +18.31' 'zero1 +4.58 +4.58 +9.00 +18.15' 'zero2 +4.58 +4.50 +9.00 +18.08' \
  'fsdp +1.14 +1.14 +2.29 +4.58'; do
  grep -qE "^BasicNet +f32 +$row " out || failed "$row"
done
# With activations, which are the same for all of these, and fewer of fewer samples.
ends 0 estimate-memory BasicNet --dtypes f32 --ranks 4 --strategy ddp,fsdp --batch 64 --draw bars.svg
prints 'Activations, of 64 samples a rank,'
activations_of() { sed -nE "s/^BasicNet +f32 +$1 .* ([0-9]+)\.[0-9]+\$/\1/p" out; }
many=$(activations_of ddp)
[[ $many -gt 4 && $many == "$(activations_of fsdp)" ]] || failed "activations: $many and $(activations_of fsdp)"
grep -q '>activations<' bars.svg || failed 'activations are not drawn'
ends 0 estimate-memory BasicNet --dtypes f32 --ranks 4 --strategy ddp --batch 32
few=$(activations_of ddp)
[[ $few -gt 4 && $few -lt $many ]] || failed "activations: $few of 32 samples, $many of 64"
mkdir -p home/peal
echo '{"ranks_per_node": 4, "strategy": "fsdp"}' >home/peal/config.json
ends 0 estimate-memory BasicNet --ranks 2 --dtypes f32
[[ $(grep -c '^BasicNet' out) == 1 ]] && prints fsdp || failed "the file's strategy"
ends 2 estimate-memory BasicNt
says "did you mean 'basicnet'?"
ends 2 estimate-memory zzz
says "there is no model 'zzz' (there are: BasicNet"
ends 2 estimate-memory BasicNet --strategy zero
ends 2 estimate-memory BasicNet --dtypes f31
ends 2 estimate-memory BasicNet --draw bars.svg  # of what a rank has; but no ranks were named
ends 2 estimate-memory BasicNet --batch 4
says '--batch: expected --strategy or --ranks'
ends 2 estimate-memory

ends 0 schedule all_reduce ring --ranks 5 --verify
ends 2 schedule all_reduce rung --ranks 5
ends 2 completion fish

# completes WORDS...: what the last of them may become.
"$peal_run" completion bash >script
completes() {
  bash -c 'source ./script; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _peal; echo "${COMPREPLY[*]}"' - "$@"
}
[[ $(completes peal la) == launch ]] || failed "la: $(completes peal la)"
[[ $(completes peal launch --max) == --max-restarts ]] || failed '--max'
[[ $(completes peal launch --bind-to '') == 'core none' ]] || failed "--bind-to: $(completes peal launch --bind-to '')"
[[ $(completes peal launch --bind-to = n) == none ]] || failed '--bind-to=n'
[[ $(completes peal schedule pipe) == pipeline ]] || failed 'a command of a command'
[[ $(completes peal schedule pipeline --mi) == --micro ]] || failed 'an option of one'
[[ $(completes peal estimate-memory --st) == --strategy ]] || failed 'an option of a tool'
[[ $(completes peal config --d) == --default ]] || failed '--d'
echo 'peal answers'
