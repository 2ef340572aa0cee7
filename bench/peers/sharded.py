#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# What a step of sharded training costs beside DDP, and beside PyTorch: two ranks of one thread, each on a core of its own;
# peal's ddp, zero1, zero2 and fsdp, and PyTorch's DDP and fully_shard over Gloo, take turns (A B C D A ...), each program
# standing still between its turns, so that whatever the machine does, it does to all. Prints for each the median of a step
# and the median of its ratios to peal's ddp, turn by turn, with their quartiles; and peal's fsdp to PyTorch's.
#
#   bench/peers/sharded.py BUILD_FOLDER [--what gpt resnet18] [--pairs 15] [--python PYTHON_WITH_TORCH] [--json FILE]
import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys

sys.dont_write_bytecode = True
from turns import NO_TRIMMING, Program, ratios  # noqa: E402

PEAL, TORCH = ["ddp", "zero1", "zero2", "fsdp"], ["ddp", "fsdp"]
AIMS = {"zero1": 1.00, "zero2": 1.05, "fsdp": 1.10}
BATCHES = {"gpt": (8, 3), "resnet18": (32, 1), "basicnet": (64, 10), "mlp": (128, 20)}  # of a rank; steps of a turn
HERE = pathlib.Path(__file__).resolve().parent

parser = argparse.ArgumentParser()
parser.add_argument("build", type=pathlib.Path)
parser.add_argument("--what", nargs="+", choices=list(BATCHES), default=["gpt", "resnet18"])
parser.add_argument("--pairs", type=int, default=15)
parser.add_argument("--python", default="/usr/bin/python3", help="the interpreter that has torch")
parser.add_argument("--json", type=pathlib.Path)
options = parser.parse_args()
ENVIRONMENT = {**os.environ, **NO_TRIMMING, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
ENVIRONMENT.pop("OPENBLAS_CORETYPE", None)


def started(model, stack):
    """Programs, each with its arms, until the stack closes."""
    def start(name, file, command, line, arms):
        program = stack.enter_context(Program(name, file, [command], ENVIRONMENT, line))
        program.turn("ddp")
        return program, arms

    batch, steps = BATCHES[model]
    file = (options.build / "bench" / "ddp_step").resolve()
    programs = [start("peal", file, [HERE.parents[1] / "launch" / "tools" / "peal-mpirun", "-n", "2", file, "--on-demand",
                                     "--model", model, "--batch", batch, "--steps", steps, "--arms", ",".join(PEAL)],
                      lambda arm: f"{arm}\n", PEAL)]
    found = subprocess.run([options.python, "-c", "from torch.distributed.fsdp import fully_shard"], capture_output=True)
    if found.returncode != 0:
        print(f"LEFT OUT PyTorch: {options.python} has no torch with fully_shard (--python)")
        return programs
    script = HERE / "torch_ddp_step.py"
    return programs + [start("PyTorch", script, [options.python, script, "2", model, batch],
                             lambda arm: f"{arm} {steps}\n", TORCH)]


results = []
print(f"{'':<9} {'program':<8} {'arm':<6} {'ms a step':>10} {'to ddp':>8}  {'(quartiles)':<15} {'aim':>5}")
for model in options.what:
    with contextlib.ExitStack() as stack:
        programs = started(model, stack)
        times = {(program.name, arm): [] for program, arms in programs for arm in arms}
        for pair in range(options.pairs):
            turns = [(program, arm) for program, arms in programs for arm in arms]
            for program, arm in turns if pair % 2 == 0 else turns[::-1]:
                times[program.name, arm].append(program.turn(arm)[0])
    for (name, arm), ms in times.items():
        low, middle, high = ratios(ms, times["peal", "ddp"])
        aim = f"{AIMS[arm]:5.2f}" if name == "peal" and arm in AIMS else ""
        print(f"{model:<9} {name:<8} {arm:<6} {statistics.median(ms):10.2f} {middle:8.3f}  ({low:.3f} {high:.3f})   {aim}".rstrip(),
              flush=True)
        results.append({"model": model, "program": name, "arm": arm, "ms": ms, "to_ddp": [low, middle, high]})
    if ("PyTorch", "fsdp") in times:
        low, middle, high = ratios(times["peal", "fsdp"], times["PyTorch", "fsdp"])
        print(f"{model:<9} peal's fsdp to PyTorch's fully_shard: {middle:.3f} ({low:.3f} {high:.3f}), the aim is 0.60", flush=True)
if options.json:
    options.json.write_text(json.dumps(results, indent=1) + "\n")
