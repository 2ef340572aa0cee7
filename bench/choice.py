#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Does peal choose well? Runs the programs of bench/perf with --algo all, which measures every algorithm in turns and the
# group's own choice beside them, and prints for each operation, number of ranks, kind of memory and size what was chosen,
# what was best, and how much longer the choice takes. Times are medians over iterations, and of those the medians
# over several runs. Naming an algorithm costs a small call some time, so what was chosen is compared by name, as the others are.
# The A/A column is how much its own times differ from run to run, and a choice is as good as the best where it is within 10 %,
# or that, of it. The others are marked with an asterisk.
#
#   bench/choice.py BUILD_FOLDER [-n 2 4] [--what all_reduce broadcast ..] [--bytes 4:64M] [--factor 4] [--turns 3]
#
# What was measured on this machine (peal-schedule calibrate) is in force, unless PEAL_TUNING=0 stands before.
# Exit status: 1 where a result is wrong or a run fails; exceptions are no failure, for times are noisy.
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
OPERATIONS = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "gather", "scatter"]
MEMORY = {"allocate()": "2", "ordinary": "0"}  # -R of the programs

parser = argparse.ArgumentParser()
parser.add_argument("build", type=pathlib.Path)
parser.add_argument("-n", "--ranks", type=int, nargs="+", default=[2, 4])
parser.add_argument("--what", nargs="+", choices=OPERATIONS, default=OPERATIONS)
parser.add_argument("--bytes", default="4K:4M", help="first:last, with K or M")
parser.add_argument("--factor", type=int, default=4)
parser.add_argument("--turns", type=int, default=3, help="runs of each program")
parser.add_argument("--iterations", type=int, default=40, help="of each algorithm in a run; fewer from 4 MB on")
parser.add_argument("--json", type=pathlib.Path, help="file for all numbers")
options = parser.parse_args()


def number(text):
    return int(text.rstrip("KM")) << {"K": 10, "M": 20}.get(text[-1], 0)


def ranges():
    """(first, last, iterations): the small sizes and the large ones, which need fewer iterations."""
    first, last = (number(text) for text in options.bytes.split(":"))
    sizes = [first]
    while sizes[-1] * options.factor <= last:
        sizes.append(sizes[-1] * options.factor)
    for part, iterations in (([s for s in sizes if s < 4 << 20], options.iterations),
                             ([s for s in sizes if s >= 4 << 20], max(options.iterations // 4, 5))):
        if part:
            yield part[0], part[-1], iterations


def results(what, ranks, registered):
    """The rows of one run."""
    rows = []
    for first, last, iterations in ranges():
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.json")
            command = [HERE.parent / "launch/tools/peal-mpirun", "-n", str(ranks), options.build / "bench/perf" / (what + "_perf"),
                       "-b", str(first), "-e", str(last), "-f", str(options.factor), "-n", str(iterations),
                       "-R", registered, "--algo", "all", "-J", path]
            done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                sys.exit(f"{what}, {ranks} ranks: status {done.returncode}\n{done.stdout}{done.stderr}")
            with open(path) as file:
                rows += json.load(file)["results"]
    return rows


def verdict(samples):
    """samples: times by way, ("ring", False), or ("ring", True) for the choice -> what to print"""
    (chosen, as_chosen), = ((name, times) for (name, is_chosen), times in samples.items() if is_chosen)
    named = {name: statistics.median(times) for (name, is_chosen), times in samples.items() if not is_chosen}
    best = min(named, key=named.get)
    own = samples.get((chosen, False), as_chosen)
    return {"chosen": chosen, "us": statistics.median(own), "best": best, "best_us": named[best],
            "ratio": statistics.median(own) / named[best], "chance": max(own) / min(own)}


print(f"{'operation':<15}{'ranks':>6} {'memory':<11}{'place':<7}{'bytes':>9}  {'chosen':<19}{'us':>10}  {'best':<19}{'us':>10}"
      f"{'ratio':>7}{'A/A':>6}")
table, exceptions = [], 0
for what in options.what:
    for ranks in options.ranks:
        for memory, registered in MEMORY.items():
            samples = {}  # (bytes, place) -> way -> times
            for _ in range(options.turns):
                for row in results(what, ranks, registered):
                    for place in ("out_of_place", "in_place"):
                        way = (row[place]["algorithm"], row["chosen"] in (True, 1, "true", "1"))
                        samples.setdefault((row["size"], place), {}).setdefault(way, []).append(row[place]["p50_us"])
            for (size, place), ways in samples.items():
                line = verdict(ways)
                bad = line["ratio"] > max(1.1, line["chance"])
                exceptions += bad
                table.append({"operation": what, "ranks": ranks, "memory": memory, "place": place, "bytes": size, **line})
                print(f"{what:<15}{ranks:>6} {memory:<11}{'in' if place == 'in_place' else 'apart':<7}{size:>9}  "
                      f"{line['chosen']:<19}{line['us']:>10.2f}  {line['best']:<19}{line['best_us']:>10.2f}"
                      f"{line['ratio']:>7.2f}{line['chance']:>6.2f}{' *' if bad else ''}", flush=True)
print(f"{len(table)} cases, {exceptions} exceptions: not within max(10 %, A/A) of the best")
if options.json:
    options.json.write_text(json.dumps(table, indent=1) + "\n")
