#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The training program itself, on the CPU and on simulated devices: what it learns must be the same.
#   train_test.sh PROGRAM PEAL_RUN RANKS [option of the program ...]
set -euo pipefail
program=$1 run=$2 ranks=$3
shift 3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for device in cpu cuda; do
  "$run" -n "$ranks" "$program" --data synthetic --train-samples 64 --seed 0 --per_device_train_batch_size 8 --device "$device" \
    --report_to jsonl --output_dir "$folder/$device" "$@"
done
python3 - "$folder" <<'PYTHON'
import json, sys
def figures(device):
    all = {}
    for line in open(f"{sys.argv[1]}/{device}/log.jsonl"):
        all.update(json.loads(line))
    return all["loss"], all["eval_accuracy"]
cpu, cuda = figures("cpu"), figures("cuda")
print(f"loss and accuracy: cpu {cpu}, cuda {cuda}")
# One image of 64 may lie on the edge between two classes.
if abs(cpu[0] - cuda[0]) > 1e-3 * cpu[0] or abs(cpu[1] - cuda[1]) > 1.5 / 64:
    sys.exit("FAILED: the devices learn something else than the CPU")
PYTHON
