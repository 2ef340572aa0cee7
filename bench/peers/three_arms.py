# SPDX-License-Identifier: Apache-2.0
# What comparisons of accuracy share. One of peal's programs trains and writes first weights, batches and rates by --export
# (launch/training/export_run.h); the script itself, called again with --run, trains the same in PyTorch; and the program
# trains on several ranks, of batches that are together as large.
import os
import pathlib
import re
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent


def add_options(parser):
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has torch")
    parser.add_argument("--ranks", type=int, default=2, help="peal's other run; 1: none")
    parser.add_argument("--run", type=pathlib.Path, help="(of this script itself) train on this file")


def opened(path):
    """All tensors of an exported run, and the first weights among them, for PyTorch on one thread."""
    import torch

    sys.dont_write_bytecode = True
    sys.path.append(str(HERE.parents[1] / "tests" / "nn"))
    from torch_exchange import load

    torch.set_num_threads(1)
    tensors, _ = load(path)
    return tensors, {key[6:]: value for key, value in tensors.items() if key.startswith("model.")}


def batches(tensors, before, *names):
    """The batches of "train.E" or "test", in order: tensors of these names."""
    k = 0
    while f"{before}.{k}.{names[0]}" in tensors:
        yield [tensors[f"{before}.{k}.{name}"] for name in names]
        k += 1


def figure_of(what, command):
    """The last number behind `what` (a regular expression) that the command prints."""
    command = [str(part) for part in command]
    out = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    found = re.findall(rf"(?:{what}) ([0-9.]+)", out.stdout)
    if out.returncode or not found:
        sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {' '.join(command)} failed:\n{out.stdout}{out.stderr}")
    return float(found[-1])


def figures(options, what, program, batch, run, *save):
    """One seed's figure of each arm, by its name. `run` is the file in between; `save` is for the first run alone."""
    if options.ranks < 1 or batch % options.ranks:
        sys.exit(f"--ranks {options.ranks}: a batch of {batch} does not part among so many as equal batches")
    found = {"peal": figure_of(what, [*program, "--batch-size", batch, "--export", run, *save])}
    found["PyTorch"] = figure_of(what, [options.python, *sys.argv, "--run", run])
    if options.ranks > 1:
        launcher = [HERE.parents[1] / "launch" / "tools" / "peal-mpirun", "-n", options.ranks]
        found[f"peal, {options.ranks} ranks"] = figure_of(
            what, [*launcher, *program, "--batch-size", batch // options.ranks])
    return found


def print_means(seeds, unit="", digits=3):
    """Of what figures() gave for each seed."""
    for arm in seeds[0]:
        found = [seed[arm] for seed in seeds]
        spread = statistics.stdev(found) if len(found) > 1 else 0
        print(f"{arm}: mean {statistics.mean(found):.{digits}f}{unit}, deviation {spread:.{digits}f}")
