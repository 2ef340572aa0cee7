# SPDX-License-Identifier: Apache-2.0
# Jobs that are to fail: how each launcher starts one, and what of it is left when it has ended. All processes of a job
# have a variable that names it, so whatever they start is found, and nothing else is ever ended.
import atexit
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
import uuid

SOURCE = pathlib.Path(__file__).resolve().parents[2]
NAME = "PEAL_FAILURES_JOB"
SHARED = pathlib.Path("/dev/shm")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that its jobs end with this
LAUNCHERS = ("mpirun", "peal-mpirun", "peal-run")


def launcher(name, build, ranks):
    """The words before a program."""
    if name == "mpirun":
        return ["mpirun", "--oversubscribe", "-n", str(ranks)]
    if name == "peal-mpirun":
        return [str(SOURCE / "launch" / "tools" / "peal-mpirun"), "-n", str(ranks)]
    return [str(build / "launch" / "run" / "peal-run"), "--grace", "1", "-n", str(ranks)]


def names_in_shared_memory():
    """Of files: folders are neither peal's nor MPI's."""
    return {entry.name for entry in os.scandir(SHARED) if not entry.is_dir()} if SHARED.is_dir() else set()


def is_mapped(name):
    """By a process that lives: another job's."""
    for maps in pathlib.Path("/proc").glob("[0-9]*/maps"):
        try:
            if f"/{name}" in maps.read_text():
                return True
        except OSError:
            pass
    return False


class Job:
    """A command under way, whose output goes to the file `log`."""

    def __init__(self, command, log, **environment):
        self.shared = names_in_shared_memory()
        name = uuid.uuid4().hex
        self.mark = f"{NAME}={name}".encode()
        variables = {"OMP_NUM_THREADS": "1", "PEAL_LOG": "warning", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                     "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **os.environ, **environment, NAME: name}
        self.log = pathlib.Path(log)
        with open(log, "ab") as output:
            self.launcher = subprocess.Popen([str(word) for word in command], env=variables, stdin=subprocess.DEVNULL,
                                             stdout=output, stderr=subprocess.STDOUT)
        atexit.register(self.kill)

    def processes(self):
        """Those of the job that live, with their variables; one that has ended and waits for its parent has none."""
        found = {}
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                variables = (folder / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if self.mark in variables:
                pairs = (entry.decode(errors="replace").partition("=") for entry in variables)
                found[int(folder.name)] = {name: value for name, _, value in pairs}
        return found

    def running(self):
        return self.launcher.poll() is None

    def wait(self, seconds):
        """Its exit status, as a shell's; None where it has not ended by then."""
        try:
            status = self.launcher.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        return status if status >= 0 else 128 - status

    def kill(self):
        """All of it at once, as far as that can be: in an order of chance."""
        while found := list(self.processes()):
            random.shuffle(found)
            for process in found:
                try:
                    os.kill(process, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.01)
        self.launcher.wait()

    def remains(self):
        """What is still there of a job that has ended, a second later."""
        for _ in range(20):
            processes = [f"process {process}" for process in self.processes()]
            files = [str(SHARED / name) for name in names_in_shared_memory() - self.shared if not is_mapped(name)]
            if not processes and not files:
                return []
            time.sleep(0.05)
        return processes + files

    def remove_files_of_mpi(self):
        """Those of Open MPI, which has nobody left to do it where mpirun itself is killed."""
        for name in names_in_shared_memory() - self.shared:
            if name.startswith("vader_segment.") and not is_mapped(name):
                (SHARED / name).unlink(missing_ok=True)

    def said(self):
        return self.log.read_text(errors="replace")


def until(condition, seconds):
    """What the condition gives once it is true, within so many seconds; else None."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.005)
    return None
