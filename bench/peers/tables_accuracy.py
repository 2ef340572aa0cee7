#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Accuracy on UCI's Adult beside PyTorch: for each seed peal's program trains and writes first weights, batches and rates;
# PyTorch trains the same model on the same batches with the same rates. Prints both after each seed, then the means, and
# peal's on two ranks of half the batch.
#
#   bench/peers/tables_accuracy.py BUILD_FOLDER --data FOLDER [--epochs N] [--seeds N] [--python PROGRAM]
import argparse
import pathlib
import sys
import tempfile

import three_arms
from three_arms import batches

parser = argparse.ArgumentParser()
parser.add_argument("build", type=pathlib.Path)
parser.add_argument("--data", type=pathlib.Path, required=True, help="folder with adult.data and adult.test")
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--lr", type=float, default=5e-3)
three_arms.add_options(parser)
options = parser.parse_args()


def train_in_torch(path):
    import torch
    import torch.nn.functional as F

    tensors, state = three_arms.opened(path)
    from torch_nets import TabularModel

    sizes = [tuple(state[f"embeds.{i}.weight"].shape) for i in range(tensors["test.0.x"].shape[1])]
    model = TabularModel(sizes, tensors["test.0.numbers"].shape[1])
    model.load_state_dict(state)
    optimizer = three_arms.adamw([list(model.named_parameters())], model, 1e-2)
    step = 0
    for epoch in range(options.epochs):
        model.train()
        for x, numbers, y in batches(tensors, f"train.{epoch}", "x", "numbers", "y"):
            three_arms.set_rates(optimizer, tensors["rates"][step])
            step += 1
            optimizer.zero_grad()
            F.cross_entropy(model(x, numbers), y).backward()
            optimizer.step()
    model.eval()
    with torch.no_grad():
        right = torch.cat([model(x, numbers).argmax(1) == y for x, numbers, y in batches(tensors, "test", "x", "numbers", "y")])
    print(f"eval_accuracy {right.double().mean().item():.5f}")


if options.run:
    train_in_torch(options.run)
    sys.exit()


seeds = []
with tempfile.TemporaryDirectory() as folder:
    for seed in range(options.seeds):
        program = [options.build / "examples" / "10_train_table", "--data", options.data, "--num_train_epochs",
                   options.epochs, "--learning_rate", options.lr, "--seed", seed]
        seeds.append(three_arms.figures(options, "eval_accuracy", program, options.batch, pathlib.Path(folder) / "run"))
        print(f"seed {seed}:", ", ".join(f"{arm} {value:.2%}" for arm, value in seeds[-1].items()), flush=True)
three_arms.print_means(seeds, digits=5)
