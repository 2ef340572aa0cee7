#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# What DDP adds to a step, peal beside PyTorch over Gloo: ranks of one core each. Three arms of each take turns (A B A B): ranks
# that train alone, the same with a barrier after each step, and DDP. Prints medians, and as medians of turns that followed
# one another, with quartiles: DDP over the barrier, and peal over PyTorch. 77 where there is no PyTorch, after peal's part.
#
#   bench/peers/ddp.py BUILD_FOLDER [-n RANKS] [--what basicnet mlp] [--pairs 20] [--python PYTHON_WITH_TORCH] [--json FILE]
import argparse
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys

MODELS = {"basicnet": (64, 10), "mlp": (128, 50)}  # batch of a rank, steps of a turn
ARMS = ["alone", "barrier", "ddp"]
HERE = pathlib.Path(__file__).resolve().parent

parser = argparse.ArgumentParser()
parser.add_argument("build", type=pathlib.Path)
parser.add_argument("-n", "--ranks", type=int, default=2)
parser.add_argument("--what", nargs="+", choices=list(MODELS), default=list(MODELS))
parser.add_argument("--pairs", type=int, default=20)
parser.add_argument("--steps", type=int, help="of a turn; default: 10, 50")
parser.add_argument("--python", default="/usr/bin/python3", help="the interpreter that has torch")
parser.add_argument("--json", type=pathlib.Path)
options = parser.parse_args()
environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PEAL_LOG": "warning"}
peers = {**environment, "MALLOC_MMAP_THRESHOLD_": "2000000000", "MALLOC_TRIM_THRESHOLD_": "8000000000",
         "MALLOC_TOP_PAD_": "268435456"}


def start(command, with_environment):
    return subprocess.Popen([str(word) for word in command], env=with_environment, stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True)


def ranks_of(process):
    """The processes that a launcher has started."""
    children = pathlib.Path(f"/proc/{process.pid}/task").glob("*/children")
    return [int(word) for path in children for word in path.read_text().split()]


def turn(process, arm, steps):
    """Between its turns a program stands still: peal's ranks would ask each other what comes next, all the while."""
    for rank in ranks_of(process):
        os.kill(rank, signal.SIGCONT)
    process.stdin.write(f"{arm} {steps}\n" if "torch_ddp_step.py" in str(process.args) else f"{arm}\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        sys.exit(f"ddp.py: {process.args[0]} ended early")
    for rank in ranks_of(process):
        os.kill(rank, signal.SIGSTOP)
    return float(line.split()[0])


def ratio(above, below):
    found = sorted(a / b for a, b in zip(above, below))
    return {"median": statistics.median(found), "low": found[len(found) // 4], "high": found[len(found) * 3 // 4]}


def words(found):
    return f"{found['median']:.3f} ({found['low']:.3f} {found['high']:.3f})"


has_torch = shutil.which(options.python) and subprocess.run(
    [options.python, "-c", "import torch.distributed"], capture_output=True).returncode == 0
results = []
print(f"ms a step of {options.ranks} ranks, medians of {options.pairs} turns; ratios with quartiles")
print(f"{'':<20} {'alone':>9} {'barrier':>9} {'DDP':>9}  {'DDP / barrier':>20}  {'peal / PyTorch, DDP':>20}")
for model in options.what:
    batch, steps = MODELS[model][0], options.steps or MODELS[model][1]
    programs = {"peal": start([HERE.parents[1] / "launch" / "tools" / "peal-mpirun", "-n", options.ranks,
                               options.build / "bench" / "ddp_step", "--on-demand", "--model", model, "--batch", batch,
                               "--steps", steps, "--arms", ",".join(ARMS)], environment)}
    if has_torch:
        programs["PyTorch"] = start([options.python, HERE / "torch_ddp_step.py", options.ranks, model, batch], peers)
    times = {name: {arm: [] for arm in ARMS} for name in programs}
    for pair in range(-1, options.pairs):  # the first does not count
        for arm in ARMS:
            for name, process in programs.items():
                spent = turn(process, arm, steps)
                if pair >= 0:
                    times[name][arm].append(spent)
    for process in programs.values():
        for rank in ranks_of(process):
            os.kill(rank, signal.SIGCONT)
        process.stdin.close()
        process.wait()
    for name, of in times.items():
        row = {"what": model, "batch": batch, "ranks": options.ranks, "name": name, "pairs": options.pairs,
               "ms": {arm: statistics.median(spent) for arm, spent in of.items()},
               "ddp_over_barrier": ratio(of["ddp"], of["barrier"])}
        line = (f"{f'{model} {batch}, {name}':<20} " + " ".join(f"{row['ms'][arm]:>9.3f}" for arm in ARMS) +
                f"  {words(row['ddp_over_barrier']):>20}")
        if name == "peal" and has_torch:
            row["ddp_over_torch"] = ratio(of["ddp"], times["PyTorch"]["ddp"])
            line += f"  {words(row['ddp_over_torch']):>20}"
        print(line, flush=True)
        results.append(row)
if not has_torch:
    print(f"SKIPPED PyTorch: {options.python} has none (--python)", file=sys.stderr)
if options.json:
    options.json.write_text(json.dumps(results) + "\n")
sys.exit(0 if has_torch else 77)
