#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# The memory of training steps, peal beside PyTorch: for each model and batch both programs run a few steps in a
# process of their own and say how much was resident at most (VmHWM), before the model was made and at the end. Prints
# the difference, which is model, optimizer, activations and what the libraries take on their way, and the ratio. Then
# the training program: resident at most, and the time from its start to its first step, median of several goes.
#
#   bench/peers/memory.py BUILD_FOLDER [--what basicnet resnet18 ...] [--steps N] [--goes N] [--json FILE]
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

BATCHES = {"basicnet": [64, 1024], "mlp": [128], "gpt": [8], "resnet18": [32, 128]}
HERE = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20

parser = argparse.ArgumentParser()
parser.add_argument("build", type=pathlib.Path)
parser.add_argument("--what", nargs="+", choices=list(BATCHES), default=["basicnet", "resnet18"])
parser.add_argument("--steps", type=int, default=4)
parser.add_argument("--goes", type=int, default=3)
parser.add_argument("--python", default="/usr/bin/python3", help="the interpreter that has torch")
parser.add_argument("--json", type=pathlib.Path)
options = parser.parse_args()
environment = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")


def marks(command):
    """Median over the goes of what the program says, in MiB: before the model, and on top of that."""
    goes = []
    for _ in range(options.goes):
        out = subprocess.run([str(part) for part in command], env=environment, capture_output=True, text=True, check=True)
        before, most = (int(word) / MIB for word in out.stdout.split())
        goes.append((before, most - before))
    return [statistics.median(column) for column in zip(*goes)]


results = []
has_torch = subprocess.run([options.python, "-c", "import torch"], capture_output=True).returncode == 0
if not has_torch:
    print(f"SKIPPED PyTorch: {options.python} has none (Debian: apt-get install python3-torch)", file=sys.stderr)
print(f"{'MiB, one thread':<24} {'PyTorch start':>14} {'steps':>8} {'peal start':>14} {'steps':>8} {'ratio of steps':>16}")
for name in options.what:
    for batch in BATCHES[name]:
        same = ["--model", name, "--batch", batch, "--steps", options.steps, "--memory"]
        row = {"what": name, "batch": batch}
        row["peal_start"], row["peal"] = marks([options.build / "bench" / "step_time", *same])
        theirs = f"{'':>14} {'':>8}"
        ratio = ""
        if has_torch:
            row["torch_start"], row["torch"] = marks([options.python, HERE / "torch_step.py", *same])
            row["ratio"] = row["peal"] / row["torch"]
            theirs, ratio = f"{row['torch_start']:>14.1f} {row['torch']:>8.1f}", f"{row['ratio']:.3f}"
        print(f"{f'{name}, batch {batch}':<24} {theirs} {row['peal_start']:>14.1f} {row['peal']:>8.1f} {ratio:>16}")
        results.append(row)

program = options.build / "examples" / "05_train_mnist"
seconds, resident = [], []
for _ in range(options.goes):
    out = subprocess.run([str(program), "--data", "synthetic", "--train-samples", "4000", "--profile"],
                         env=environment, capture_output=True, text=True, check=True).stdout
    seconds.append(float(re.search(r"first training step done ([\d.]+) s", out)[1]))
    resident.append(float(re.search(r"resident at most ([\d.]+) MiB", out)[1]))
row = {"what": "05_train_mnist", "resident": statistics.median(resident), "first_step_s": statistics.median(seconds)}
results.append(row)
print(f"05_train_mnist on 4000 synthetic digits, batch 32: resident at most {row['resident']:.1f} MiB, first step done "
      f"{row['first_step_s']:.2f} s after the start")
if options.json:
    options.json.write_text(json.dumps(results) + "\n")
