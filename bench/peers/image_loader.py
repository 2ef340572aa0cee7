#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# peal's loader of images beside PyTorch's DataLoader with torchvision's ImageFolder, on the same folder of JPEGs, with
# the same transforms (RandomResizedCrop, RandomHorizontalFlip, normalised f32) and as many workers. Both live at once and
# take turns, pass by pass (A B A B), so that whatever the machine does, it does to both; workers stay between passes.
# Prints images a second and the processor's milliseconds an image, and of each pair the ratio: medians and quartiles.
#
#   bench/peers/image_loader.py BUILD_FOLDER [--images N] [--size 224] [--workers 2] [--pairs N] [--cifar FILE]
#
# The folder is made for the purpose: CIFAR-10's images (--cifar cifar10-images.tar.gz), or else waves, at 500 x 375 pixels
# with the noise of a camera, about 100 kB each as those of ImageNet; with --data any other.
import argparse
import io
import os
import pathlib
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time

try:
    import numpy
    import torch
    import torchvision
    from PIL import Image
    from torchvision import transforms
except ImportError as error:
    sys.exit(f"image_loader: {error}; this comparison needs PyTorch, torchvision and Pillow")

parser = argparse.ArgumentParser()
parser.add_argument("build", type=pathlib.Path)
parser.add_argument("--data", type=pathlib.Path, help="a folder of images, one folder a class")
parser.add_argument("--cifar", type=pathlib.Path, default=pathlib.Path("../shared/data/cifar10-images.tar.gz"))
parser.add_argument("--images", type=int, default=600)
parser.add_argument("--size", type=int, default=224)
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--workers", type=int, default=2)
parser.add_argument("--pairs", type=int, default=5)
arguments = parser.parse_args()
torch.set_num_threads(1)


def small_images(count):
    if arguments.cifar.is_file():
        with tarfile.open(arguments.cifar) as archive:
            for entry in archive:
                if entry.isfile() and count > 0:
                    yield Image.open(io.BytesIO(archive.extractfile(entry).read())).convert("RGB")
                    count -= 1
                if count == 0:
                    return
    random = numpy.random.RandomState(1)
    y, x = numpy.mgrid[0:32, 0:32]
    for _ in range(count):
        waves = [128 + 100 * numpy.sin(x * random.uniform(0, 1) + y * random.uniform(0, 1)) for _ in range(3)]
        yield Image.fromarray(numpy.stack(waves, 2).astype(numpy.uint8))


def make_folder(root):
    random = numpy.random.RandomState(2)
    for i, image in enumerate(small_images(arguments.images)):
        large = numpy.asarray(image.resize((500, 375), Image.Resampling.BICUBIC)).astype(numpy.float32)
        noisy = (large + random.normal(0, 9, large.shape)).clip(0, 255).astype(numpy.uint8)
        folder = root / f"class{i % 10}"
        folder.mkdir(exist_ok=True)
        Image.fromarray(noisy).save(folder / f"{i:05}.jpg", quality=90)


class Peal:
    def __init__(self, folder, *options):
        program = [arguments.build / "bench" / "image_loader", "--data", folder, "--size", str(arguments.size),
                   "--batch", str(arguments.batch), "--workers", str(arguments.workers), *options]
        self.process = subprocess.Popen([str(word) for word in program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def turn(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        rate, cost = self.process.stdout.readline().split()
        return float(rate), float(cost)


class Torch:
    def __init__(self, folder):
        normalize = transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
        steps = [transforms.RandomResizedCrop(arguments.size), transforms.RandomHorizontalFlip(), transforms.ToTensor(), normalize]
        images = torchvision.datasets.ImageFolder(folder, transforms.Compose(steps))
        self.loader = torch.utils.data.DataLoader(images, arguments.batch, shuffle=True, num_workers=arguments.workers,
                                                  persistent_workers=arguments.workers > 0)

    def processor(self):
        spent = time.process_time()
        for worker in getattr(self.loader._iterator, "_workers", []):
            fields = pathlib.Path(f"/proc/{worker.pid}/stat").read_text().rsplit(")", 1)[1].split()
            spent += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return spent

    def turn(self):
        start, before, count = time.perf_counter(), self.processor() if self.loader._iterator else None, 0
        for x, _ in self.loader:
            count += len(x)
        cost = 0.0 if before is None else 1e3 * (self.processor() - before) / count
        return count / (time.perf_counter() - start), cost


def describe(name, pairs):
    rates, costs = zip(*pairs)
    print(f"{name:<32}{statistics.median(rates):>10.1f} images/s{statistics.median(costs):>10.2f} ms of processor an image")


def compare(folder):
    files = [path for path in folder.rglob("*.jpg")]
    print(f"{len(files)} images of {sum(path.stat().st_size for path in files) / len(files) / 1000:.0f} kB; "
          f"{arguments.workers} workers, batches of {arguments.batch}, {arguments.size} x {arguments.size}; "
          f"PyTorch {torch.__version__}, torchvision {torchvision.__version__}; {arguments.pairs} pairs")
    sides = {"PyTorch + torchvision": Torch(folder), "peal": Peal(folder), "peal, scaled decode": Peal(folder, "--scaled-decode")}
    turns = {name: [] for name in sides}
    for side in sides.values():
        side.turn()  # files come into memory, workers start
    for _ in range(arguments.pairs):
        for name, side in sides.items():
            turns[name].append(side.turn())
    for name, pairs in turns.items():
        describe(name, pairs)
    base = turns["PyTorch + torchvision"]
    for name in ("peal", "peal, scaled decode"):
        ratios = [own[0] / other[0] for own, other in zip(turns[name], base)]
        costs = [other[1] / own[1] for own, other in zip(turns[name], base)]
        low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
        print(f"{name}: {middle:.2f} times as many images a second ({low:.2f} to {high:.2f}), "
              f"{statistics.median(costs):.2f} times as many an hour of processor")


if arguments.data:
    compare(arguments.data)
else:
    with tempfile.TemporaryDirectory() as made:
        make_folder(pathlib.Path(made))
        compare(pathlib.Path(made))
