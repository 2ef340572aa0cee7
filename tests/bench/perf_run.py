# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of bench/perf for the tests beside this file."""
import os
import subprocess

PROGRAMS = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "gather", "scatter",
            "sendrecv"]
DEADLINE = 200  # seconds


class Runner:
    """`launcher` is peal-mpirun, `folder` that of the programs."""

    def __init__(self, launcher, folder):
        self.launcher, self.folder = launcher, folder

    def __call__(self, name, ranks, words, env=None, launched=True, program=None):
        """(exit status, standard output, standard error)"""
        command = [program or os.path.join(self.folder, name + "_perf")] + words.split()
        if launched:
            command = [self.launcher, "-n", str(ranks)] + command
        done = subprocess.run(command, env={**os.environ, **(env or {})}, capture_output=True, text=True,
                              timeout=DEADLINE, stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout, done.stderr

    def table(self, name, ranks, words, env=None):
        status, out, err = self(name, ranks, words, env)
        assert status == 0, f"{name} {words}: status {status}\n{out}{err}"
        return out


def rows(out):
    """The rows of the table, in words."""
    return [line.split() for line in out.splitlines() if line and not line.startswith("#")]
