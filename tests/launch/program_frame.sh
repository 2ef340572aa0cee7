#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the tests of programs that train share; each sources it, and is then in an empty folder of its own.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export PEAL_LOG=warning
failed() {
  echo "FAILED: $*"
  exit 1
}
# run LOG COMMAND...: the log, where it fails, too.
run() {
  local log=$1
  shift
  "$@" >"$log" 2>&1 || { cat "$log"; failed "$*"; }
}
# figures LOG: of the epochs, a number a line: "loss 0.3841", "eval_loss 0.2907", "eval_accuracy 0.8891".
figures() { grep -oE "\{'loss': [0-9.e-]+|'eval_(loss|accuracy|f1|perplexity)': [0-9.e-]+" "$1" | tr -d "{':"; }
# alike LOG LOG: the same epochs, and figures that differ by rounding alone, as sums of two ranks have another order.
alike() {
  paste <(figures "$1" | tr ' ' '\n') <(figures "$2" | tr ' ' '\n') | awk '
    $1 == $2 { next }
    $1 ~ /^[0-9.]+$/ && $2 ~ /^[0-9.]+$/ && $1 - $2 < 0.002 && $2 - $1 < 0.002 { next }
    { print; wrong = 1 }
    END { exit wrong || NR == 0 }'
}
# last NAME LOG: the last of them that is called so.
last() { figures "$2" | sed -n "s/^$1 //p" | tail -n 1; }
# newest FOLDER: its newest checkpoint.
newest() { find "$1" -name 'checkpoint-*.safetensors' | sort -V | tail -n 1; }
# same_end FOLDER FOLDER: two runs have come to the same last bit.
same_end() { cmp "$(newest "$1")" "$(newest "$2")"; }
# refused WORDS COMMAND...: it ends with an error that says so.
refused() {
  local words=$1 status=0
  shift
  "$@" >log 2>&1 </dev/null || status=$?
  [[ $status -ne 0 && $status -lt 128 ]] || failed "$*: exit status $status"
  grep -qF -e "$words" log || { cat log; failed "it does not say: $words"; }
}
