#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# all_reduce between nodes without MPI, beside what the wire carries and beside PyTorch's over Gloo: two network namespaces that
# a pair of virtual interfaces joins at a rate (tbf), one rank or more in each. All take turns, several times: iperf3 in both
# directions at once (--bidir, the slower counts), and for each size peal, Gloo, and, with several ranks in each, peal's flat ring.
# A row's times are medians of turns, a turn's the mean of its calls; ratios are medians of turns that followed one another.
#
#   MB/s       the buffer's bytes in peal's time: what each node has to send and to receive at least
#   of iperf3  that, beside iperf3's; the aim is 0.9 where the buffer is large
#   Gloo/peal  how many times peal's time Gloo takes; the aim is 1.5
#   ring/peal  and the flat ring, each of whose ranks sends to the next: 1.5 times what two levels send, with 2 ranks on each
#
# Needs root and iproute2; without iperf3 or torch their columns are missing.
#
#   bench/peers/between_nodes.py BUILD_FOLDER [--rate 1gbit] [--sizes 4 64K 1M 16M 64M] [--ranks 1 2] [--turns 5]
#                                [--python PYTHON_WITH_TORCH]
import argparse
import json
import os
import pathlib
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from two_hosts import PLACES, call, connect, limit, need  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
UNITS = {"K": 1 << 10, "M": 1 << 20}
DEADLINE = 120  # seconds of a turn

parser = argparse.ArgumentParser()
parser.add_argument("build", type=pathlib.Path)
parser.add_argument("--rate", default="1gbit")
parser.add_argument("--sizes", nargs="+", default=["4", "64K", "1M", "16M", "64M"])
parser.add_argument("--ranks", nargs="+", type=int, default=[1, 2], help="on each of the two nodes")
parser.add_argument("--turns", type=int, default=5)
parser.add_argument("--python", default="/usr/bin/python3", help="the interpreter that has torch")
options = parser.parse_args()
need("between_nodes.py", "ip", "tc", "taskset")
sizes = [int(float(text[:-1]) * UNITS[text[-1]]) if text[-1] in UNITS else int(text) for text in options.sizes]
cores = sorted(os.sched_getaffinity(0))


def start(node, core, command, stdin=subprocess.DEVNULL, **more):
    space, link, _ = PLACES[node]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PEAL_LOG": "error", "PEAL_NODE": space,
                   "GLOO_SOCKET_IFNAME": link, **{name: str(value) for name, value in more.items()}}
    words = ["ip", "netns", "exec", space, "taskset", "-c", cores[core % len(cores)], *command]
    return subprocess.Popen([str(word) for word in words], env=environment, stdin=stdin, stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, text=True)


def give_up(name, processes):
    statuses = [process.poll() for process in processes]
    for process in processes:
        process.kill()
    sys.exit(f"between_nodes.py: {name} failed: {statuses}")


def calls_of(size):
    return max(5, min(100, (64 << 20) // size))


def wire():
    """Bytes a second."""
    server = start(1, 1, ["iperf3", "-s", "-1"])
    for _ in range(20):
        time.sleep(0.2)
        client = start(0, 0, ["iperf3", "-c", PLACES[1][2], "-t", "3", "-O", "1", "-J", "--bidir"])
        said = client.communicate(timeout=DEADLINE)[0]
        if client.returncode == 0:
            break
    else:
        give_up("iperf3", [server, client])
    server.wait(timeout=DEADLINE)
    end = json.loads(said)["end"]
    return min(end["sum_received"]["bits_per_second"], end["sum_received_bidir_reverse"]["bits_per_second"]) / 8


def peal(on_each, size, **more):
    """Seconds of a call, in place."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        program = [options.build / "bench" / "perf" / "all_reduce_perf", "-b", size, "-e", size, "-n", calls_of(size), "-w", 2,
                   "-J", report]
        ranks = [start(rank // on_each, rank, program, RANK=rank, WORLD_SIZE=2 * on_each, LOCAL_RANK=rank % on_each,
                       LOCAL_WORLD_SIZE=on_each, MASTER_ADDR=PLACES[0][2], MASTER_PORT=29511, **more)
                 for rank in range(2 * on_each)]
        for rank in ranks:
            rank.communicate(timeout=DEADLINE)
        if any(rank.returncode != 0 for rank in ranks):
            give_up("peal", ranks)
        return json.loads(report.read_text())["results"][0]["in_place"]["time"] * 1e-6


class Gloo:
    """Its ranks, which sleep between turns."""

    def __init__(self, on_each, folder):
        command = [options.python, HERE / "gloo_all_reduce.py", 2 * on_each]
        self.ranks = [start(rank // on_each, rank, [*command, rank, pathlib.Path(folder) / "meeting"],
                            subprocess.PIPE if rank == 0 else subprocess.DEVNULL) for rank in range(2 * on_each)]

    def turn(self, size):
        """Seconds of a call."""
        first = self.ranks[0]
        try:
            first.stdin.write(f"{size} {calls_of(size)}\n")
            first.stdin.flush()
            there = select.select([first.stdout], [], [], DEADLINE)[0]
            return float(first.stdout.readline().split()[2]) * 1e-6 if there else give_up("Gloo", self.ranks)
        except (BrokenPipeError, IndexError):
            give_up("Gloo", self.ranks)

    def end(self):
        self.ranks[0].stdin.close()
        if any(rank.wait(timeout=DEADLINE) != 0 for rank in self.ranks):
            give_up("Gloo's end", self.ranks)


def ratio(times, arm):
    if arm not in times:
        return "-"
    return f"{statistics.median(other / ours for other, ours in zip(times[arm], times['peal'])):.2f}"


def measure(on_each):
    arms = {"peal": lambda size: peal(on_each, size)}
    if on_each > 1:
        arms["ring"] = lambda size: peal(on_each, size, PEAL_ALGO="all_reduce=ring")
    with tempfile.TemporaryDirectory() as folder:
        gloo = Gloo(on_each, folder) if has_torch else None
        if gloo:
            gloo.turn(4)
            arms["Gloo"] = gloo.turn
        rates, times = [], {size: {arm: [] for arm in arms} for size in sizes}
        for turn in range(options.turns):
            if shutil.which("iperf3"):
                rates.append(wire())
            for size in sizes:
                for arm in list(arms)[:: 1 if turn % 2 == 0 else -1]:
                    times[size][arm].append(arms[arm](size))
        if gloo:
            gloo.end()
    rate = statistics.median(rates) if rates else None
    print(f"{options.rate}, {on_each} rank{'s' if on_each > 1 else ''} on each node; iperf3, both directions at once: "
          f"{f'{rate / 1e6:.1f} MB/s' if rate else 'not installed'}")
    print(f"{'bytes':>10} {'peal us':>11} {'MB/s':>8} {'of iperf3':>10} {'Gloo us':>11} {'Gloo/peal':>10} {'ring/peal':>10}")
    for size in sizes:
        found = times[size]
        ours, theirs = statistics.median(found["peal"]), statistics.median(found.get("Gloo", [0]))
        print(f"{size:>10} {ours * 1e6:>11.1f} {size / ours / 1e6:>8.1f} {f'{size / ours / rate:.3f}' if rate else '-':>10} "
              f"{f'{theirs * 1e6:.1f}' if theirs else '-':>11} {ratio(found, 'Gloo'):>10} {ratio(found, 'ring'):>10}", flush=True)


connect()
limit(options.rate)
has_torch = call(options.python, "-c", "import torch.distributed", check=False).returncode == 0
for on_each in options.ranks:
    measure(on_each)
