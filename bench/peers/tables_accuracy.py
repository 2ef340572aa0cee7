#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Accuracy on UCI's Adult beside PyTorch: for each seed peal's program trains and writes first weights, batches and rates;
# PyTorch trains the same model on the same batches with the same rates. Prints both after each seed, then the means, and
# peal's on two ranks of half the batch.
#
#   bench/peers/tables_accuracy.py BUILD_FOLDER --data FOLDER [--epochs N] [--seeds N] [--python PROGRAM]
import argparse
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent

parser = argparse.ArgumentParser()
parser.add_argument("build", type=pathlib.Path)
parser.add_argument("--data", type=pathlib.Path, required=True, help="folder with adult.data and adult.test")
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--lr", type=float, default=5e-3)
parser.add_argument("--seeds", type=int, default=3)
parser.add_argument("--python", default=sys.executable, help="the interpreter that has torch")
parser.add_argument("--ranks", type=int, default=2, help="peal's other run; 1: none")
parser.add_argument("--run", type=pathlib.Path, help="(of this script itself) train on this file")
options = parser.parse_args()


def train_in_torch(path):
    import torch
    import torch.nn.functional as F

    sys.dont_write_bytecode = True
    sys.path += [str(HERE), str(HERE.parents[1] / "tests" / "nn")]
    from exported import batches
    from torch_exchange import load
    from torch_nets import TabularModel

    tensors, _ = load(path)
    torch.set_num_threads(1)
    state = {key[6:]: value for key, value in tensors.items() if key.startswith("model.")}
    sizes = [tuple(state[f"embeds.{i}.weight"].shape) for i in range(tensors["test.0.x"].shape[1])]
    model = TabularModel(sizes, tensors["test.0.numbers"].shape[1])
    model.load_state_dict(state)
    optimizer = torch.optim.AdamW(model.parameters())
    step = 0
    for epoch in range(options.epochs):
        model.train()
        for x, numbers, y in batches(tensors, f"train.{epoch}", "x", "numbers", "y"):
            optimizer.param_groups[0]["lr"] = tensors["rates"][step, 0].item()
            step += 1
            optimizer.zero_grad()
            F.cross_entropy(model(x, numbers), y).backward()
            optimizer.step()
    model.eval()
    with torch.no_grad():
        right = torch.cat([model(x, numbers).argmax(1) == y for x, numbers, y in batches(tensors, "test", "x", "numbers", "y")])
    print(f"accuracy {right.double().mean().item() * 100:.3f}")


if options.run:
    train_in_torch(options.run)
    sys.exit()


def accuracy_of(command):
    out = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    found = re.findall(r"accuracy ([0-9.]+)", out.stdout)
    if out.returncode or not found:
        sys.exit(f"tables_accuracy: {command[0]} failed:\n{out.stdout}{out.stderr}")
    return float(found[-1])


same = ["--data", options.data, "--epochs", options.epochs, "--lr", options.lr]
results = {"PyTorch": [], "peal": [], f"peal, {options.ranks} ranks": []}
with tempfile.TemporaryDirectory() as folder:
    run = pathlib.Path(folder) / "run.safetensors"
    for seed in range(options.seeds):
        program = options.build / "examples" / "10_train_table"
        mine = [program, *same, "--batch-size", options.batch, "--seed", seed, "--export", run]
        results["peal"].append(accuracy_of(mine))
        results["PyTorch"].append(accuracy_of([options.python, __file__, options.build, "--run", run, *same, "--batch", options.batch]))
        if options.ranks > 1:
            several = [HERE.parents[1] / "launch" / "tools" / "peal-run", "-n", options.ranks, program, *same,
                       "--batch-size", options.batch // options.ranks, "--seed", seed]
            results[f"peal, {options.ranks} ranks"].append(accuracy_of(several))
        print(f"seed {seed}:", ", ".join(f"{name} {found[-1]:.2f} %" for name, found in results.items() if found), flush=True)
for name, found in results.items():
    if found:
        spread = statistics.stdev(found) if len(found) > 1 else 0
        print(f"{name}: mean {statistics.mean(found):.3f} %, deviation {spread:.3f}")
