#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# peal config: questions, wrong answers, an early end; and files that are wrong.
set -euo pipefail
# shellcheck source=tests/launch/peal/frame.sh
source "$(dirname "$0")/frame.sh" "$@"
file=home/peal/config.json
# answers WORDS...: one a line.
answers() { printf '%s\n' "$@" >input; }

answers 0 two 2 1 cpux '' fp16 bf16 zero zero1
ends 0 config <input
prints 'expected 1 or more, got 0'
prints "expected a whole number, got 'two'"
prints "device: expected cpu, cuda or cuda:N, got 'cpux'"
prints "expected f32, bf16 or f16, got 'fp16'; did you mean 'f16'?"
prints "expected ddp, zero1, zero2 or fsdp, got 'zero'; did you mean 'zero1'?"
[[ $(tr -d ' \n' <$file) == '{"ranks_per_node":2,"nodes":1,"hosts":"","device":"cpu","gpus":"","precision":"bf16","strategy":"zero1"}' ]] ||
  failed "the file: $(cat $file)"
ends 0 config --show
prints 'precision: bf16'

# What is there is what an empty answer keeps; an early end leaves the file as it is, and none beside it.
cp $file before
answers '' 2 a a:2,b a,b
ends 2 config <input
says 'the answers ended at'
prints 'expected the names of 2 nodes, apart by commas, got 1'
prints 'ranks_per_node says how many'
cmp $file before || failed 'half of the answers were written'
ends 2 config --file fresh/config.json </dev/null
[[ ! -e fresh ]] || failed 'something was written'
answers 3 2 a,b '' '' ''
ends 0 config <input
[[ $(tr -d ' \n' <$file) == *'"ranks_per_node":3,"nodes":2,"hosts":"a,b"'*'"zero1"}' ]] || failed "the file: $(cat $file)"
[[ $(ls home/peal) == config.json ]] || failed "more than the file: $(ls home/peal)"

# One for this machine without questions, which replaces none by itself.
ends 2 config --default
says 'is there already; --force replaces it'
ends 0 config --default --force
ends 0 config --default --file deep/down.json
cmp $file deep/down.json || failed 'two defaults'

PEAL_CONFIG=none ends 2 config --default
says 'PEAL_CONFIG is none'

# wrong TEXT MESSAGE: a file that launch refuses.
wrong() {
  echo "$1" >wrong.json
  ends 2 launch --config wrong.json true
  says "wrong.json: $2"
}
wrong '{"precison": "f32"}' "there is no key 'precison'; did you mean 'precision'?"
wrong '{"colour": 1}' "there is no key 'colour'"
wrong '{"nodes": "2"}' 'nodes: expected a whole number, got "2"'
wrong '{"nodes": 1.5}' 'nodes: expected a whole number, got 1.5'
wrong '{"device": 1}' 'device: expected text, got 1'
wrong '{"nodes": 2}' 'hosts: expected the names of 2 nodes'
wrong '{"gpus": "0,,1"}' 'gpus: expected numbers of GPUs'
wrong '{"nodes": ' 'no JSON'
wrong '[1]' 'expected an object'
echo 'peal is configured'
