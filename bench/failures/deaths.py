#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# What the other ranks see when one fails, at moments of chance: it is killed (SIGKILL), stopped (SIGSTOP), ends with an
# exception, calls exit(0), or is killed by the kernel as its control group has no memory left. In each run all others
# must catch a peal::Error that names the rank, the job must end by itself and not with 0, nothing of it may remain
# (processes, files in /dev/shm), and no sum may have been wrong: sums have known values, and the parameters of a training
# are the same on all ranks and in all runs, step by step. A sharded training saves a checkpoint in each second step: after
# the failure the newest that was whole must load, and the steps after it come to the same parameters; how many runs failed
# before there was any is said. Prints a table: seconds from the failure to the others' errors and to the job's end; `late`
# is how many errors came more than 0.5 s after a failure, or after the deadline of who waits for a stopped rank.
#
#   bench/failures/deaths.py BUILD_FOLDER [--count 50] [--seed 1] [--programs sums training sharded]
#                            [--launchers mpirun peal-mpirun peal-run] [--ways kill stop exception exit memory]
#
# The exit status is 1 where anything else than a time was not as it should be.
import argparse
import itertools
import os
import pathlib
import random
import re
import signal
import statistics
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from jobs import LAUNCHERS, Job, launcher, until  # noqa: E402

DEADLINE = 2  # PEAL_TIMEOUT, where a rank is stopped
GROUPS = (pathlib.Path("/sys/fs/cgroup/memory"), pathlib.Path("/sys/fs/cgroup"))

parser = argparse.ArgumentParser()
parser.add_argument("build", type=pathlib.Path)
parser.add_argument("--count", type=int, default=50, help="moments of each kind")
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--ranks", type=int, default=3)
parser.add_argument("--window", type=float, default=0.5,
                    help="seconds after the first round in which the moments lie")
parser.add_argument("--limit", type=float, default=60, help="seconds after which a job that has not ended hangs")
parser.add_argument("--programs", nargs="+", default=["sums", "training", "sharded"],
                    choices=["sums", "training", "sharded"])
parser.add_argument("--launchers", nargs="+", default=LAUNCHERS, choices=LAUNCHERS)
parser.add_argument("--ways", nargs="+", default=["kill", "stop", "exception", "exit", "memory"])
options = parser.parse_args()
program = options.build / "bench" / "failures" / "failing_ranks"


def memory_group():
    """A new control group of 16 MiB, or none where they cannot be made."""
    for root, limit in zip(GROUPS, ("memory.limit_in_bytes", "memory.max")):
        if not (root / "cgroup.procs").exists():
            continue
        group = root / f"peal-failures-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            with open(group / limit, "r+") as file:
                file.write(str(16 << 20))
            return group
        except OSError:
            group.rmdir()
    return None


def records(folder):
    """Of each rank: (word, seconds, text)."""
    found = []
    for rank in range(options.ranks):
        file = pathlib.Path(folder) / f"rank.{rank}"
        lines = file.read_text().splitlines() if file.exists() else []
        words = [line.split(" ", 2) for line in lines]
        found.append([(word, int(when) * 1e-9, text) for word, when, text in words])
    return found


class Parameters:
    """By launcher and step, their hash; all runs check each other."""
    known = {}

    @classmethod
    def differ(cls, name, step, value):
        return cls.known.setdefault((name, step), value) != value


class Run:
    def __init__(self, what, name, way, number):
        chance = random.Random(f"{options.seed} {what} {name} {way} {number}")
        self.what, self.name, self.way = what, name, way
        self.victim, self.after = chance.randrange(options.ranks), chance.uniform(0, options.window)
        self.errors, self.end, self.message, self.faults = [], None, "", []
        self.went_on = False  # from a checkpoint
        with tempfile.TemporaryDirectory() as folder:
            words = [*launcher(name, options.build, options.ranks), program, what, folder]
            if way not in ("kill", "stop"):
                words += ["--way", way, "--rank", self.victim, "--after", f"{self.after:.6f}"]
            if way == "memory":
                words += ["--group", group]
            job = Job(words, f"{folder}/log", PEAL_TIMEOUT=str(DEADLINE if way == "stop" else 30))
            try:
                self.watch(job, folder)
            finally:
                job.kill()
            if what == "sharded" and not self.faults:
                self.go_on(folder)
            if self.faults:
                print(f"FAULT {what} {name} {way} {number}, rank {self.victim} after {self.after:.6f} s: "
                      f"{'; '.join(self.faults)}; it said:\n{job.said()}", file=sys.stderr, flush=True)

    def watch(self, job, folder):
        def all_have_begun():  # or, where one fails as soon as it has, that did
            return not job.running() or all(any(word == "begins" for word, _, _ in of) for of in records(folder))
        if not until(all_have_begun, options.limit) or not records(folder)[self.victim]:
            return self.faults.append("not all ranks have begun")
        failed = None
        if self.way in ("kill", "stop"):
            process = next((int(text) for word, _, text in records(folder)[self.victim] if word == "begins"), None)
            if process is None:
                return self.faults.append(f"rank {self.victim} has not begun")
            time.sleep(self.after)
            failed = time.monotonic()
            try:
                os.kill(process, signal.SIGKILL if self.way == "kill" else signal.SIGSTOP)
            except ProcessLookupError:
                return self.faults.append(f"rank {self.victim} has ended by itself")
        status = job.wait(options.limit)
        ended = time.monotonic()
        if status is None:
            return self.faults.append(f"not ended after {options.limit:g} s")
        self.judge(records(folder), failed, ended)
        if status == 0:
            self.faults.append("exit status 0")
        self.faults += [f"{what} remains" for what in job.remains()]

    def judge(self, found, failed, ended):
        if failed is None:
            failed = max((when for word, when, _ in found[self.victim] if word == "fails"), default=None)
        if failed is None:
            return self.faults.append(f"rank {self.victim} has not failed")
        self.end = ended - failed
        for rank, lines in enumerate(found):
            for word, when, text in lines:
                if word == "wrong":
                    self.faults.append(f"rank {rank}: {text}")
                if word == "step" and Parameters.differ(f"{self.name} {self.what}", *text.split()):
                    self.faults.append(f"rank {rank}: other parameters after step {text.split()[0]}")
            if rank == self.victim:
                continue
            caught = [(when, text) for word, when, text in lines if word == "error"]
            if not caught:
                self.faults.append(f"rank {rank} has caught no peal::Error")
                continue
            when, text = caught[0]
            self.errors.append(when - failed)
            self.message = self.message or text
            if not re.search(rf"\brank {self.victim}\b", text):
                self.faults.append(f"rank {rank}: the error does not name rank {self.victim}: {text}")

    def go_on(self, folder):
        """From the checkpoint that is there, in another job."""
        before = [(word, text) for lines in records(folder) for word, _, text in lines]
        saved = max((int(text) for word, text in before if word == "saved"), default=None)
        last = max((int(text.split()[0]) for word, text in before if word == "step"), default=0)
        if saved is None and last >= 2:
            self.faults.append(f"step {last} was taken, and no checkpoint saved after step 1")
        for file in pathlib.Path(folder).glob("rank.*"):
            file.unlink()
        words = [*launcher(self.name, options.build, options.ranks), program, "sharded", folder, "--steps", 3]
        job = Job(words, f"{folder}/log", PEAL_TIMEOUT="30")
        try:
            status = job.wait(options.limit)
        finally:
            job.kill()
        if status != 0:
            return self.faults.append(f"the job that goes on ended with {status}: {job.said()}")
        for rank, lines in enumerate(records(folder)):
            loaded = [int(text) for word, _, text in lines if word == "loaded"]
            self.went_on = self.went_on or bool(loaded)
            if saved is not None and (not loaded or loaded[0] < saved):
                self.faults.append(f"rank {rank} went on from {loaded}, and the checkpoint of step {saved} was there")
            steps = [text.split() for word, _, text in lines if word == "step"]
            if [int(step) for step, _ in steps] != [(loaded[0] + 1 if loaded else 0) + i for i in range(3)]:
                self.faults.append(f"rank {rank} took the steps {steps} after {loaded}")
            if any(Parameters.differ(f"{self.name} sharded", *step) for step in steps):
                self.faults.append(f"rank {rank}: other parameters after a checkpoint was loaded")

    def late(self):
        return sum(seconds > 0.5 + (DEADLINE if self.way == "stop" else 0) for seconds in self.errors)


def figures(values):
    return f"{statistics.median(values):8.3f} {max(values):8.3f}" if values else f"{'-':>8} {'-':>8}"


group = memory_group() if "memory" in options.ways else None
faulty = 0
messages = {}
sharded = []
try:
    if "memory" in options.ways and group is None:
        print("LEFT OUT memory: no control group can be made here (/sys/fs/cgroup)")
        options.ways.remove("memory")
    print(f"{options.ranks} ranks, seed {options.seed}, moments within {options.window:g} s; a stopped rank is waited "
          f"for {DEADLINE} s\n")
    print(f"{'':35} {'error':>8} {'':8} {'job ends':>8}")
    print(f"{'program':9} {'launcher':11} {'way':9} {'runs':>4} {'median':>8} {'worst':>8} {'median':>8} {'worst':>8} "
          f"{'late':>5} {'faults':>6}", flush=True)
    for what, name, way in itertools.product(options.programs, options.launchers, options.ways):
        runs = [Run(what, name, way, number) for number in range(options.count)]
        bad = sum(bool(run.faults) for run in runs)
        sharded += [run for run in runs if what == "sharded"]
        faulty += bad
        for run in runs:
            if not run.faults:
                messages.setdefault(way, run.message)
        errors, ends = [s for run in runs for s in run.errors], [run.end for run in runs if run.end is not None]
        print(f"{what:9} {name:11} {way:9} {len(runs):4} {figures(errors)} {figures(ends)} "
              f"{sum(run.late() for run in runs):5} {bad:6}", flush=True)
finally:
    if group:
        group.rmdir()
print("\nWhat a rank catches, the first of each:")
for way, message in messages.items():
    print(f"  {way}: {message}")
if sharded:
    print(f"\n{sum(run.went_on for run in sharded)} of {len(sharded)} sharded trainings went on from a checkpoint, "
          f"{sum(not run.went_on for run in sharded)} from the start")
print(f"\n{faulty} runs with faults")
sys.exit(1 if faulty else 0)
