#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# What a step of sharded training costs beside DDP, and beside PyTorch: two ranks of one thread, each on a core of its own;
# peal's ddp, zero1, zero2 and fsdp, and PyTorch's DDP and fully_shard over Gloo, take turns (A B C D A ...), each program
# standing still between its turns, so that whatever the machine does, it does to all. Prints for each the median of a step
# and the median of its ratios to peal's ddp, turn by turn, with their quartiles; and peal's fsdp to PyTorch's.
#
#   bench/peers/sharded.py BUILD_FOLDER [--what gpt resnet18] [--pairs 15] [--python PYTHON_WITH_TORCH] [--json FILE]
import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys

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


class Program:
    """Ranks that time a group of steps for each line."""

    def __init__(self, name, marker, command, line):
        self.name, self.marker, self.line = name, str(marker).encode(), line
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1",
                       "MALLOC_MMAP_THRESHOLD_": "2000000000", "MALLOC_TRIM_THRESHOLD_": "8000000000",
                       "MALLOC_TOP_PAD_": "268435456"}
        environment.pop("OPENBLAS_CORETYPE", None)
        self.process = subprocess.Popen([str(word) for word in command], env=environment, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def signal(self, number):
        """To its ranks, whichever launcher's children they are."""
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if self.marker in path.read_bytes().split(b"\0")[:2]:
                    os.kill(int(path.parent.name), number)
            except (FileNotFoundError, ProcessLookupError):
                pass

    def turn(self, arm):
        self.signal(signal.SIGCONT)
        self.process.stdin.write(self.line(arm))
        self.process.stdin.flush()
        words = self.process.stdout.readline().split()
        if not words:
            sys.exit(f"sharded.py: {self.name} ended early")
        self.signal(signal.SIGSTOP)
        return float(words[0])

    def end(self):
        self.signal(signal.SIGCONT)
        self.process.stdin.close()
        self.process.wait()


def started(model):
    batch, steps = BATCHES[model]
    program = (options.build / "bench" / "ddp_step").resolve()
    peal = Program("peal", program, [HERE.parents[1] / "launch" / "tools" / "peal-mpirun", "-n", "2", program, "--on-demand",
                                     "--model", model, "--batch", batch, "--steps", steps, "--arms", ",".join(PEAL)],
                   lambda arm: f"{arm}\n")
    peal.turn("ddp")
    found = subprocess.run([options.python, "-c", "from torch.distributed.fsdp import fully_shard"], capture_output=True)
    if found.returncode != 0:
        print(f"LEFT OUT PyTorch: {options.python} has no torch with fully_shard (--python)")
        return [(peal, PEAL)]
    script = HERE / "torch_ddp_step.py"
    torch = Program("PyTorch", script, [options.python, script, "2", model, batch], lambda arm: f"{arm} {steps}\n")
    try:
        torch.turn("ddp")
    except SystemExit:
        peal.end()
        raise
    return [(peal, PEAL), (torch, TORCH)]


def quartiles(ratios):
    ratios = sorted(ratios)
    return [ratios[len(ratios) * quarter // 4] for quarter in (2, 1, 3)]


results = []
print(f"{'':<9} {'program':<8} {'arm':<6} {'ms a step':>10} {'to ddp':>8}  {'(quartiles)':<15} {'aim':>5}")
for model in options.what:
    programs = started(model)
    times = {(program.name, arm): [] for program, arms in programs for arm in arms}
    try:
        for pair in range(options.pairs):
            turns = [(program, arm) for program, arms in programs for arm in arms]
            for program, arm in turns if pair % 2 == 0 else turns[::-1]:
                times[program.name, arm].append(program.turn(arm))
    finally:  # those that stand still, too
        for program, _ in programs:
            program.end()
    for (name, arm), ms in times.items():
        middle, low, high = quartiles([a / b for a, b in zip(ms, times["peal", "ddp"])])
        aim = f"{AIMS[arm]:5.2f}" if name == "peal" and arm in AIMS else ""
        print(f"{model:<9} {name:<8} {arm:<6} {statistics.median(ms):10.2f} {middle:8.3f}  ({low:.3f} {high:.3f})   {aim}".rstrip(),
              flush=True)
        results.append({"model": model, "program": name, "arm": arm, "ms": ms, "to_ddp": [low, middle, high]})
    if ("PyTorch", "fsdp") in times:
        middle, low, high = quartiles([a / b for a, b in zip(times["peal", "fsdp"], times["PyTorch", "fsdp"])])
        print(f"{model:<9} peal's fsdp to PyTorch's fully_shard: {middle:.3f} ({low:.3f} {high:.3f}), the aim is 0.60", flush=True)
if options.json:
    options.json.write_text(json.dumps(results, indent=1) + "\n")
