#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# What DDP adds to a step, peal beside PyTorch over Gloo: ranks of one core each. Three arms of each take turns (A B A B): ranks
# that train alone, the same with a barrier after each step, and DDP. Prints medians, and as medians of turns that followed
# one another, with quartiles: DDP over the barrier, and peal over PyTorch. 77 where there is no PyTorch, after peal's part.
#
#   bench/peers/ddp.py BUILD_FOLDER [-n RANKS] [--what basicnet mlp] [--pairs 20] [--python PYTHON_WITH_TORCH] [--json FILE]
import argparse
import contextlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

sys.dont_write_bytecode = True
from turns import NO_TRIMMING, Program, ratios  # noqa: E402

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
peers = {**environment, **NO_TRIMMING}


def start_peal(model, batch, steps):
    file = (options.build / "bench" / "ddp_step").resolve()
    return Program("peal", file, [[HERE.parents[1] / "launch" / "tools" / "peal-mpirun", "-n", options.ranks, file,
                                   "--on-demand", "--model", model, "--batch", batch, "--steps", steps,
                                   "--arms", ",".join(ARMS)]], environment, lambda arm: f"{arm}\n")


def start_torch(model, batch, steps):
    script = HERE / "torch_ddp_step.py"
    return Program("PyTorch", script, [[options.python, script, options.ranks, model, batch]], peers,
                   lambda arm: f"{arm} {steps}\n")


def ratio(above, below):
    return dict(zip(("low", "median", "high"), ratios(above, below)))


def words(found):
    return f"{found['median']:.3f} ({found['low']:.3f} {found['high']:.3f})"


has_torch = shutil.which(options.python) and subprocess.run(
    [options.python, "-c", "import torch.distributed"], capture_output=True).returncode == 0
results = []
print(f"ms a step of {options.ranks} ranks, medians of {options.pairs} turns; ratios with quartiles")
print(f"{'':<20} {'alone':>9} {'barrier':>9} {'DDP':>9}  {'DDP / barrier':>20}  {'peal / PyTorch, DDP':>20}")
for model in options.what:
    batch, steps = MODELS[model][0], options.steps or MODELS[model][1]
    with contextlib.ExitStack() as stack:
        programs = [stack.enter_context(start(model, batch, steps)) for start in
                    ([start_peal, start_torch] if has_torch else [start_peal])]
        times = {program.name: {arm: [] for arm in ARMS} for program in programs}
        for pair in range(-1, options.pairs):  # the first does not count
            for arm in ARMS:
                for program in programs:
                    spent = program.turn(arm)[0]
                    if pair >= 0:
                        times[program.name][arm].append(spent)
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
