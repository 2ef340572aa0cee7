#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Trainings that are killed and go on. First the whole job, with SIGKILL at moments of chance, while it saves after each
# step (--output_dir FOLDER --save_steps 1 --resume_from_checkpoint true): each checkpoint that is there must be whole, the newest never older
# than before, the next start must go on from it, and the end must equal that of a training that was left alone, bit for
# bit. Then one rank of a job under peal-run --max-restarts, again and again: the training ends by itself, in the same bits.
#
#   bench/failures/resumes.py BUILD_FOLDER [--kills 100] [--rank-kills 20] [--seed 1] [--launchers peal-run mpirun]
#
# Prints how often it was killed, how many starts saved nothing, and how many went on from a checkpoint. The exit status is 1
# where something was not as it should be.
import argparse
import os
import pathlib
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import zlib

sys.dont_write_bytecode = True
from jobs import LAUNCHERS, Job, launcher, until  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("build", type=pathlib.Path)
parser.add_argument("--kills", type=int, default=100, help="of a whole job, over all launchers")
parser.add_argument("--rank-kills", type=int, default=20, help="of one rank under peal-run --max-restarts")
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--ranks", type=int, default=3)
parser.add_argument("--samples", type=int, default=384, help="digits to train on")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--limit", type=float, default=120, help="seconds after which a job that has not ended hangs")
parser.add_argument("--launchers", nargs="+", default=["peal-run", "mpirun"], choices=LAUNCHERS)
options = parser.parse_args()
random.seed(options.seed)
faults = 0


def fault(text, job=None):
    global faults
    faults += 1
    print(f"FAULT {text}" + (f"; it said:\n{job.said()}" if job else ""), file=sys.stderr, flush=True)


def train(name, *more):
    """A training by this launcher, with these options of the training's or, before "--", the launcher's."""
    own = more[:more.index("--")] if "--" in more else ()
    return [*launcher(name, options.build, options.ranks), *own, options.build / "examples" / "05_train_mnist",
            "--data", "synthetic", "--train-samples", options.samples, "--per_device_train_batch_size", 16, "--num_train_epochs",
            options.epochs, "--save_strategy", "steps", "--save_steps", 1,
            *more[len(own) + bool(own):]]


def newest_first(folder):
    def number(file):
        return int(file.name.split("-")[1])
    return sorted(folder.glob("checkpoint-*.safetensors"), key=number, reverse=True)


def is_whole(file):
    """By its length and its CRC-32, in which its own digits count as zeros (autograd/core/safetensors_checksum.h)."""
    data = file.read_bytes()
    digits = re.search(rb'"peal\.checksum":"crc32:([0-9a-f]{8})"', data)
    if digits is None:
        return False
    return zlib.crc32(data[:digits.start(1)] + b"0" * 8 + data[digits.end(1):]) == int(digits[1], 16)


def figures(text):
    """Of the last epoch, which one start of a training comes to the end of, or the last two."""
    return set(re.findall(rf"'(eval_loss': [0-9.]+, 'eval_accuracy': [0-9.]+).*'epoch': {options.epochs}\.0", text))


class Alone:
    """A training by this launcher that was left alone."""

    def __init__(self, name, folder):
        whole = folder / f"whole-{name}"
        job = Job(train(name, "--output_dir", whole, "--overwrite_output_dir", "true"), folder / f"{name}.log")
        start = time.monotonic()
        if job.wait(options.limit) != 0:
            job.kill()
            sys.exit(f"resumes.py: a training that nobody kills fails: {job.said()}")
        self.seconds = time.monotonic() - start
        self.bytes, self.figures = newest_first(whole)[0].read_bytes(), figures(job.said())

    def is_equal(self, run, said, what):
        files = newest_first(run)
        if not files or files[0].read_bytes() != self.bytes:
            fault(f"{what}: it ended with other parameters")
        if figures(said) != self.figures:
            fault(f"{what}: it ended with {figures(said)}, and left alone with {self.figures}")


SAVING = ("--save_total_limit", 3, "--resume_from_checkpoint", "true")


def kill_whole_jobs(name, kills, folder):
    alone = Alone(name, folder)
    done = ended = starts_on = early = 0
    run, said = folder / "run", ""
    while True:
        before = newest_first(run)
        job = Job(train(name, "--output_dir", run, *SAVING), folder / f"{name}-{done}-{ended}.log", PEAL_LOG="info")
        # The last training is left alone.
        status = job.wait(random.uniform(0.05, alone.seconds) if done < kills else options.limit)
        at_kill = newest_first(run)
        job.kill()
        job.remove_files_of_mpi()
        what = f"{name}, after kill {done}"
        for left in job.remains():
            fault(f"{what}: {left} remains")
        here, after = job.said(), newest_first(run)
        said += here
        early += after == before
        for file in after:
            if not is_whole(file):
                fault(f"{what}: {file.name} is not whole")
        if at_kill and (not after or int(after[0].name.split("-")[1]) < int(at_kill[0].name.split("-")[1])):
            fault(f"{what}: {at_kill[0].name} is lost")
        if "passed over" in here:
            fault(f"{what}: a checkpoint is passed over", job)
        for origin in re.findall(r"going on after (?:step|epoch) .* of (\S+)", here):
            starts_on += 1
            if not before or origin != str(before[0]):
                fault(f"{what}: it goes on from {origin}, and {before[:1]} is the newest")
        if status is None:
            if done == kills:
                fault(f"{what}: it has not ended after {options.limit:g} s", job)
                break
            done += 1
            continue
        if status != 0:
            fault(f"{what}: exit status {status}", job)
            break
        alone.is_equal(run, said, what)
        ended += 1
        if done == kills:
            break
        shutil.rmtree(run)
        said = ""
    shutil.rmtree(run, ignore_errors=True)
    print(f"{name}: {done} kills of the whole job; {early} starts saved nothing, {starts_on} went on from a checkpoint; "
          f"{ended} trainings came to their end; left alone: {alone.seconds:.1f} s, {' '.join(alone.figures)}", flush=True)


def kill_ranks(kills, folder):
    alone = Alone("peal-run", folder)
    done = ended = 0
    run = folder / "run"
    while done < kills:
        log = folder / f"ranks-{ended}.log"
        words = train("peal-run", "--max-restarts", kills, "--", "--output_dir", run, *SAVING)
        job = Job(words, log, PEAL_LOG="info")
        here = 0  # kills of this job
        end = time.monotonic() + options.limit * (1 + kills)
        while done < kills and job.running():
            def ranks():
                found = {variables["RANK"]: process for process, variables in job.processes().items()
                         if variables.get("TORCHELASTIC_RESTART_COUNT") == str(here)}
                return not job.running() or (len(found) == options.ranks and found)
            found = until(ranks, options.limit)
            if not isinstance(found, dict):
                break
            if job.wait(random.uniform(0.05, alone.seconds / 2)) is not None:
                break
            try:
                os.kill(random.choice(list(found.values())), signal.SIGKILL)
            except ProcessLookupError:
                break  # it came to its end meanwhile
            done, here = done + 1, here + 1
        status = job.wait(max(0, end - time.monotonic()))
        job.kill()
        said = job.said()
        what = f"ranks of peal-run, after kill {done}"
        if status != 0:
            fault(f"{what}: exit status {status}", job)
            break
        if said.count("was ended by SIGKILL") < here:
            fault(f"{what}: {here} kills, and not as many are named", job)
        alone.is_equal(run, said, what)
        for left in job.remains():
            fault(f"{what}: {left} remains")
        ended += 1
        shutil.rmtree(run)
    print(f"peal-run --max-restarts: {done} kills of one rank; {ended} trainings came to their end by themselves",
          flush=True)


with tempfile.TemporaryDirectory() as name:
    print(f"{options.ranks} ranks, {options.samples} samples, {options.epochs} epochs, a checkpoint after each step; "
          f"seed {options.seed}")
    shares = [options.kills // len(options.launchers) + (i < options.kills % len(options.launchers))
              for i in range(len(options.launchers))]
    for way, share in zip(options.launchers, shares):
        if share > 0:
            kill_whole_jobs(way, share, pathlib.Path(name))
    if options.rank_kills > 0:
        kill_ranks(options.rank_kills, pathlib.Path(name))
print(f"{faults} faults")
sys.exit(1 if faults else 0)
