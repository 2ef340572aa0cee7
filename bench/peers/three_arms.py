# SPDX-License-Identifier: Apache-2.0
# What comparisons of accuracy share. One of peal's programs trains and writes first weights, batches and rates by --export
# (launch/training/trainer/export_run.h); the script itself, called again with --run, trains the same in PyTorch; and the program
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


def halves(parameters, module_of):
    """As the Trainer groups them: those that decay, then biases and norms, each half if there is any. `parameters` are
    (name, tensor) pairs, `module_of` the model."""
    import torch

    norms = (torch.nn.LayerNorm, torch.nn.GroupNorm, torch.nn.modules.batchnorm._BatchNorm)
    bare = {id(p) for m in module_of.modules() if isinstance(m, norms) for p in m.parameters()}
    parts = [[], []]
    for name, tensor in parameters:
        parts[name.split(".")[-1] == "bias" or id(tensor) in bare].append(tensor)
    return [(part, decays) for part, decays in zip(parts, (True, False)) if part]


def adamw(groups, model, decay, **options):
    """PyTorch's AdamW of groups of (name, tensor) pairs, of which each is split as the Trainer does."""
    import torch

    return torch.optim.AdamW([{"params": part, "weight_decay": decay if decays else 0}
                              for group in groups for part, decays in halves(group, model)], **options)


def set_rates(optimizer, rates):
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate.item()


def figure_of(what, command):
    """The last number behind `what` (a regular expression) that the command prints: 'eval_loss': 0.31, eval_loss 0.31."""
    command = [str(part) for part in command]
    out = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    found = re.findall(rf"(?:{what})'?:? ([0-9.e-]+)", out.stdout)
    if out.returncode or not found:
        sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {' '.join(command)} failed:\n{out.stdout}{out.stderr}")
    return float(found[-1])


def figures(options, what, program, batch, run, *save):
    """One seed's figure of each arm, by its name. `run` is the file in between; `save` is for the first run alone."""
    if options.ranks < 1 or batch % options.ranks:
        sys.exit(f"--ranks {options.ranks}: a batch of {batch} does not part among so many as equal batches")
    found = {"peal": figure_of(what, [*program, "--per_device_train_batch_size", batch, "--export", run, *save])}
    found["PyTorch"] = figure_of(what, [options.python, *sys.argv, "--run", run])
    if options.ranks > 1:
        launcher = [HERE.parents[1] / "launch" / "tools" / "peal-mpirun", "-n", options.ranks]
        found[f"peal, {options.ranks} ranks"] = figure_of(
            what, [*launcher, *program, "--per_device_train_batch_size", batch // options.ranks])
    return found


def print_means(seeds, digits):
    """Of what figures() gave for each seed."""
    for arm in seeds[0]:
        found = [seed[arm] for seed in seeds]
        spread = statistics.stdev(found) if len(found) > 1 else 0
        print(f"{arm}: mean {statistics.mean(found):.{digits}f}, deviation {spread:.{digits}f}")
