#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Validation loss of a GPT by characters beside PyTorch: for each seed peal's program trains and writes first weights,
# batches and rates; PyTorch trains the same model on the same batches with the same rates. Prints both after each seed,
# then the means, and peal's on two ranks of half the batch.
#
#   bench/peers/gpt_accuracy.py BUILD_FOLDER --data TEXT [--epochs N] [--seeds N] [--python PROGRAM]
import argparse
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent

parser = argparse.ArgumentParser()
parser.add_argument("build", type=pathlib.Path)
parser.add_argument("--data", type=pathlib.Path, required=True, help="a text")
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--lr", type=float, default=2e-3)
parser.add_argument("--layers", type=int, default=4)
parser.add_argument("--heads", type=int, default=4)
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--block", type=int, default=64)
parser.add_argument("--seeds", type=int, default=3)
parser.add_argument("--python", default=sys.executable, help="the interpreter that has torch")
parser.add_argument("--ranks", type=int, default=2, help="peal's other run; 1: none")
parser.add_argument("--run", type=pathlib.Path, help="(of this script itself) train on this file")
options = parser.parse_args()


def train_in_torch(path):
    import torch
    import torch.nn as nn
    import torch.nn.functional as F

    sys.dont_write_bytecode = True
    sys.path.append(str(HERE.parents[1] / "tests" / "nn"))
    from exported import batches
    from torch_exchange import load
    from torch_gpt2 import GPT2

    tensors, _ = load(path)
    torch.set_num_threads(1)
    state = {key[6:]: value for key, value in tensors.items() if key.startswith("model.")}
    words = state["lm_head.weight"].shape[0]
    model = GPT2(words, options.width, options.heads, options.layers, options.block, linear=nn.Linear)
    model.load_state_dict(state)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, betas=(0.9, 0.99), weight_decay=0.1)

    def loss_of(x, y, reduction="mean"):
        return F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction=reduction)

    rates = iter(tensors["rates"][:, 0].tolist())
    for epoch in range(options.epochs):
        for x, y in batches(tensors, f"train.{epoch}", "x", "y"):
            optimizer.param_groups[0]["lr"] = next(rates)
            optimizer.zero_grad()
            loss_of(x, y).backward()
            optimizer.step()
    with torch.no_grad():
        # What the last window tells once more is -100, which counts for nothing.
        sums = [(loss_of(x, y, "sum").item(), (y >= 0).sum().item()) for x, y in batches(tensors, "test", "x", "y")]
    print(f"test loss {sum(loss for loss, _ in sums) / sum(count for _, count in sums):.5f}")


if options.run:
    train_in_torch(options.run)
    sys.exit()


def loss_of(command):
    start = time.time()
    out = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    found = re.findall(r"test loss ([0-9.]+)", out.stdout)
    if out.returncode or not found:
        sys.exit(f"gpt_accuracy: {command[0]} failed:\n{out.stdout}{out.stderr}")
    return float(found[-1]), time.time() - start


same = ["--data", options.data, "--epochs", options.epochs, "--lr", options.lr]
for name in ("layers", "heads", "width", "block"):
    same += [f"--{name}", getattr(options, name)]
results = {"PyTorch": [], "peal": [], f"peal, {options.ranks} ranks": []}
with tempfile.TemporaryDirectory() as folder:
    run = pathlib.Path(folder) / "run.safetensors"
    for seed in range(options.seeds):
        program = options.build / "examples" / "11_train_gpt"
        mine = [program, *same, "--batch-size", options.batch, "--seed", seed, "--export", run]
        results["peal"].append(loss_of(mine))
        peer = [options.python, __file__, options.build, "--run", run, *same, "--batch", options.batch]
        results["PyTorch"].append(loss_of(peer))
        if options.ranks > 1:
            several = [HERE.parents[1] / "launch" / "tools" / "peal-run", "-n", options.ranks, program, *same,
                       "--batch-size", options.batch // options.ranks, "--seed", seed]
            results[f"peal, {options.ranks} ranks"].append(loss_of(several))
        print(f"seed {seed}:", ", ".join(f"{name} {found[-1][0]:.4f} ({found[-1][1]:.0f} s)"
                                         for name, found in results.items() if found), flush=True)
for name, found in results.items():
    if found:
        losses = [loss for loss, _ in found]
        spread = statistics.stdev(losses) if len(losses) > 1 else 0
        print(f"{name}: mean {statistics.mean(losses):.4f}, deviation {spread:.4f}")
