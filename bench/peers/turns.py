# SPDX-License-Identifier: Apache-2.0
# Programs that live at once and take turns: each times a group of steps for each line that it is sent, and answers with
# a line of numbers. For ratios.py.
import os
import pathlib
import subprocess


class Failed(Exception):
    """A measurement, which alone it costs."""


def peer_environment(blas):
    """The strongest settings known for PyTorch on Debian: no malloc trimming, one OpenMP pool, AVX-512 kernels, and the
    libblas.so.3 of the folder `blas`."""
    environment = dict(os.environ)
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
        environment.pop(name, None)
    environment.update(MALLOC_MMAP_THRESHOLD_="2000000000", MALLOC_TRIM_THRESHOLD_="8000000000",
                       MALLOC_TOP_PAD_="268435456")
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
        raise Failed(f"{' '.join(process.args[:4])} ... ended early with status {process.wait()}")
    return line.split()


def turn(process):
    process.stdin.write("\n")
    process.stdin.flush()
    return [float(word) for word in heard(process)]


def end(*processes):
    for process in processes:
        process.stdin.close()
        process.stdout.read()
        process.wait()


def blas_of(process):
    """The file that the process calls for matrix products: Debian's PyTorch takes whatever libblas.so.3 is."""
    for line in pathlib.Path(f"/proc/{process.pid}/maps").read_text().splitlines():
        path = line.split()[-1]
        if "libblas" in path or "openblas" in path or "mkl_rt" in path:
            return os.path.realpath(path)
    return ""
