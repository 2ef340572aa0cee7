#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Validation loss of a GPT by characters beside PyTorch: for each seed peal's program trains and writes first weights,
# batches and rates; PyTorch trains the same model on the same batches with the same rates. Prints both after each seed,
# then the means, and peal's on two ranks of half the batch.
#
#   bench/peers/gpt_accuracy.py BUILD_FOLDER --data TEXT [--epochs N] [--seeds N] [--python PROGRAM]
import argparse
import pathlib
import sys
import tempfile

import three_arms
from three_arms import batches

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
three_arms.add_options(parser)
options = parser.parse_args()


def train_in_torch(path):
    import torch
    import torch.nn as nn
    import torch.nn.functional as F

    tensors, state = three_arms.opened(path)
    from torch_gpt2 import GPT2

    words = state["lm_head.weight"].shape[0]
    model = GPT2(words, options.width, options.heads, options.layers, options.block, linear=nn.Linear)
    model.load_state_dict(state)
    optimizer = three_arms.adamw([list(model.named_parameters())], model, 0.1, betas=(0.9, 0.99))

    def loss_of(x, y, reduction="mean"):
        return F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction=reduction)

    rates = iter(tensors["rates"])
    for epoch in range(options.epochs):
        for x, y in batches(tensors, f"train.{epoch}", "x", "y"):
            three_arms.set_rates(optimizer, next(rates))
            optimizer.zero_grad()
            loss_of(x, y).backward()
            optimizer.step()
    with torch.no_grad():
        # What the last window tells once more is -100, which counts for nothing.
        sums = [(loss_of(x, y, "sum").item(), (y >= 0).sum().item()) for x, y in batches(tensors, "test", "x", "y")]
    print(f"eval_loss {sum(loss for loss, _ in sums) / sum(count for _, count in sums):.5f}")


if options.run:
    train_in_torch(options.run)
    sys.exit()


seeds = []
with tempfile.TemporaryDirectory() as folder:
    for seed in range(options.seeds):
        program = [options.build / "examples" / "11_train_gpt", "--data", options.data, "--num_train_epochs",
                   options.epochs, "--learning_rate", options.lr, "--seed", seed]
        for name in ("layers", "heads", "width", "block"):
            program += [f"--{name}", getattr(options, name)]
        seeds.append(three_arms.figures(options, "eval_loss", program, options.batch, pathlib.Path(folder) / "run"))
        print(f"seed {seed}:", ", ".join(f"{arm} {value:.4f}" for arm, value in seeds[-1].items()), flush=True)
three_arms.print_means(seeds, digits=4)
