#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Accuracy of resnet18 on CIFAR-10's images beside PyTorch: for each seed peal's program trains and writes first weights,
# batches (cropped and turned as they came) and rates; PyTorch trains the same model on the same batches with the same
# rates. Prints both after each seed, then the means, and peal's on several ranks of smaller batches, which are together as
# large (with batch norm over all of them).
#
#   bench/peers/images_accuracy.py BUILD_FOLDER --data cifar10-images.tar.gz [--images N] [--seeds N] [--python PROGRAM]
import argparse
import pathlib
import re
import sys
import tarfile
import tempfile

import three_arms
from three_arms import batches

parser = argparse.ArgumentParser()
parser.add_argument("build", type=pathlib.Path)
parser.add_argument("--data", type=pathlib.Path, required=True, help="archive with train/<class>/ and test/<class>/")
parser.add_argument("--images", type=int, default=50, help="of each class to train on, the first by name")
parser.add_argument("--tests", type=int, default=50, help="of each class to judge by, the first by name")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--lr", type=float, default=0.02)
three_arms.add_options(parser)
options = parser.parse_args()


def train_in_torch(path):
    import torch
    import torch.nn.functional as F

    tensors, state = three_arms.opened(path)
    from torch_nets import ResNet18

    # torch_nets has the blocks in one row, torchvision (and peal) two to a stage; both in one order.
    model = ResNet18()
    own = {}
    for key, value in state.items():
        stage = re.match(r"layer(\d)\.(\d)\.(.*)", key)
        own[f"layers.{2 * int(stage[1]) - 2 + int(stage[2])}.{stage[3]}" if stage else key] = value
    model.load_state_dict(own)
    groups = [{"params": part} for part, _ in three_arms.halves(model.named_parameters(), model)]
    optimizer = torch.optim.SGD(groups, lr=1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    step = 0
    for epoch in range(options.epochs):
        model.train()
        for x, y in batches(tensors, f"train.{epoch}", "x", "y"):
            three_arms.set_rates(optimizer, tensors["rates"][step])
            step += 1
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    model.eval()
    with torch.no_grad():
        right = torch.cat([model(x).argmax(1) == y for x, y in batches(tensors, "test", "x", "y")])
    print(f"eval_accuracy {right.double().mean().item():.5f}")


if options.run:
    train_in_torch(options.run)
    sys.exit()


def unpack(folder):
    with tarfile.open(options.data) as archive:
        by_class = {}
        for name in sorted(archive.getnames()):
            if name.endswith(".jpg"):
                by_class.setdefault(pathlib.Path(name).parent, []).append(name)
        wanted = {name for where, names in by_class.items()
                  for name in names[:options.images if where.parent.name == "train" else options.tests]}
        archive.extractall(folder, [member for member in archive if member.name in wanted])


seeds = []
with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    unpack(folder)
    for seed in range(options.seeds):
        program = [options.build / "examples" / "12_train_images", "--data", folder, "--num_train_epochs",
                   options.epochs, "--learning_rate", options.lr, "--seed", seed]
        seeds.append(three_arms.figures(options, "eval_accuracy", program, options.batch, folder / "run"))
        print(f"seed {seed}:", ", ".join(f"{arm} {value:.2%}" for arm, value in seeds[-1].items()), flush=True)
three_arms.print_means(seeds, digits=5)
