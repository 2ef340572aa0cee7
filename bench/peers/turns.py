# SPDX-License-Identifier: Apache-2.0
# Programs that live at once and take turns: each times a group of steps for each line that it is sent, and answers with
# a line of numbers. Of one process: start(), turn(), end(). Of ranks: Program.
import itertools
import os
import pathlib
import signal
import statistics
import subprocess
import sys

# glibc's malloc gives nothing back between steps, which PyTorch is faster with.
NO_TRIMMING = {"MALLOC_MMAP_THRESHOLD_": "2000000000", "MALLOC_TRIM_THRESHOLD_": "8000000000", "MALLOC_TOP_PAD_": "268435456"}

PATIENCE = 30  # seconds, with a program that is to end


class Failed(Exception):
    """A measurement, which alone it costs."""


def peer_environment(blas):
    """The strongest settings known for PyTorch on Debian: no malloc trimming, one OpenMP pool, AVX-512 kernels, and the
    libblas.so.3 of the folder `blas`."""
    environment = dict(os.environ)
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
        environment.pop(name, None)
    environment.update(NO_TRIMMING)
    flags = pathlib.Path("/proc/cpuinfo").read_text() if os.path.exists("/proc/cpuinfo") else ""
    if "avx512f" in flags:
        environment["OPENBLAS_CORETYPE"] = "SkylakeX"
    if blas.is_dir():
        environment["LD_LIBRARY_PATH"] = str(blas.resolve())
    return environment


def start(command, environment, threads, pinned=True):
    """Of so many threads; pinned to as many cores, the same for all."""
    cores = sorted(os.sched_getaffinity(0))[:threads]
    on_them = {"preexec_fn": lambda: os.sched_setaffinity(0, cores)} if pinned else {}
    environment = {**environment, "OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
    return subprocess.Popen([str(part) for part in command], env=environment, stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True, **on_them)


def heard(process):
    line = process.stdout.readline()
    if not line:
        raise Failed(f"{' '.join(process.args[:4])} ... ended early with status {ended(process)}")
    return line.split()


def turn(process):
    process.stdin.write("\n")
    process.stdin.flush()
    return [float(word) for word in heard(process)]


def ended(process, kill=lambda: None):
    """Its status: in time, or once what it started is killed, or it itself. One that no signal reaches, in a driver say, is
    left to the system."""
    for then in (kill, process.kill, lambda: None):
        try:
            process.communicate(timeout=PATIENCE)
            break
        except subprocess.TimeoutExpired:
            then()
    else:
        if process.poll() is None:
            print(f"{' '.join(map(str, process.args[:4]))} ... (process {process.pid}) does not end", file=sys.stderr)
    return process.returncode


def end(*processes, kill=lambda: None):
    for process in processes:
        try:
            process.stdin.close()
        except BrokenPipeError:
            pass
        process.stdin = None  # which communicate() would close
    for process in processes:
        ended(process, kill)


def blas_of(process):
    """The file that the process calls for matrix products: Debian's PyTorch takes whatever libblas.so.3 is."""
    for line in pathlib.Path(f"/proc/{process.pid}/maps").read_text().splitlines():
        path = line.split()[-1]
        if "libblas" in path or "openblas" in path or "mkl_rt" in path:
            return os.path.realpath(path)
    return ""


def ratios(above, below):
    """The low quartile, the median and the high quartile of what turns that followed one another took."""
    found = sorted(a / b for a, b in zip(above, below, strict=True))
    return found[len(found) // 4], statistics.median(found), found[len(found) * 3 // 4]


class Program:
    """Ranks that time a group of steps for each line, and stand still between their turns: else they would ask each other
    what comes next, all the while. In a `with`, at whose end they end."""

    numbers = itertools.count()

    def __init__(self, name, file, commands, environment, line, **how):
        """`file` is what the ranks run, whoever starts them: the launchers that `commands` start go on. `line` gives the
        words that ask for a turn of an arm."""
        self.name, self.file, self.line = name, str(file).encode(), line
        mark = f"{os.getpid()}.{next(self.numbers)}"  # ranks inherit it, those of a launcher's daemon, too
        self.mark = f"PEAL_BENCH_TURNS={mark}".encode()
        environment = {**environment, "PEAL_BENCH_TURNS": mark}
        self.processes = [subprocess.Popen([str(word) for word in command], env=environment, stdin=subprocess.PIPE,
                                           stdout=subprocess.PIPE, text=True, **how) for command in commands]

    def ranks(self):
        found = []
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if (self.file in (folder / "cmdline").read_bytes().split(b"\0")[:2] and
                        self.mark in (folder / "environ").read_bytes().split(b"\0")):
                    found.append(int(folder.name))
            except OSError:  # gone, or another's
                pass
        return found

    def signal(self, number):
        for rank in self.ranks():
            try:
                os.kill(rank, number)
            except ProcessLookupError:
                pass

    def turn(self, arm):
        self.signal(signal.SIGCONT)
        first = self.processes[0]
        try:
            first.stdin.write(self.line(arm))
            first.stdin.flush()
            words = first.stdout.readline().split()
        except BrokenPipeError:
            words = []
        if not words:
            sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {self.name} ended early")
        self.signal(signal.SIGSTOP)
        return [float(word) for word in words]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.signal(signal.SIGCONT)
        end(*self.processes, kill=lambda: self.signal(signal.SIGKILL))
