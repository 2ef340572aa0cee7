#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# One training step, peal beside PyTorch: both programs live at once, pinned to the same cores, and take turns
# (A B A B) with groups of steps, so that whatever the machine does, it does to both. Prints both medians and
# the median of the ratios, pair by pair. Says so and stops where python3 has no torch.
#
#   bench/peers/step_time.py BUILD_FOLDER [--model basicnet|mlp] [--batch N] [--threads N] [--pairs N] [--json FILE]
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

parser = argparse.ArgumentParser()
parser.add_argument("build", type=pathlib.Path)
parser.add_argument("--model", choices=["basicnet", "mlp"], default="basicnet")
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--pairs", type=int, default=15)
parser.add_argument("--steps", type=int, default=10)
parser.add_argument("--python", default="/usr/bin/python3", help="the interpreter that has torch")
parser.add_argument("--json", type=pathlib.Path)
options = parser.parse_args()


def peer_environment():
    """The strongest settings known for PyTorch on Debian: no malloc trimming, one OpenMP pool, AVX-512 kernels."""
    environment = dict(os.environ)
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
        environment.pop(name, None)
    environment.update(MALLOC_MMAP_THRESHOLD_="2000000000", MALLOC_TRIM_THRESHOLD_="8000000000",
                       MALLOC_TOP_PAD_="268435456")
    flags = pathlib.Path("/proc/cpuinfo").read_text() if os.path.exists("/proc/cpuinfo") else ""
    if "avx512f" in flags:
        environment["OPENBLAS_CORETYPE"] = "SkylakeX"
    openmp_blas = pathlib.Path("/usr/lib/x86_64-linux-gnu/openblas-openmp")
    if openmp_blas.is_dir():
        environment["LD_LIBRARY_PATH"] = str(openmp_blas)
    return environment


def start(command, environment):
    environment["OMP_NUM_THREADS"] = str(options.threads)
    environment["OPENBLAS_NUM_THREADS"] = str(options.threads)
    cores = sorted(os.sched_getaffinity(0))[: options.threads]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                            preexec_fn=lambda: os.sched_setaffinity(0, cores))


def turn(process):
    process.stdin.write("\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        sys.exit(f"step_time: {process.args[0]} ended early")
    return float(line)


if subprocess.run([options.python, "-c", "import torch"], capture_output=True).returncode != 0:
    print(f"SKIPPED: {options.python} has no torch (Debian: apt-get install python3-torch); nothing was compared",
          file=sys.stderr)
    sys.exit(77)

same = ["--model", options.model, "--batch", str(options.batch), "--threads", str(options.threads),
        "--steps", str(options.steps)]
here = pathlib.Path(__file__).resolve().parent
torch = start([options.python, str(here / "torch_step.py"), *same], peer_environment())
peal = start([str(options.build / "bench" / "step_time"), "--on-demand", *same], dict(os.environ))
turn(torch), turn(peal)
pairs = [(turn(torch), turn(peal)) for _ in range(options.pairs)]
for process in (torch, peal):
    process.stdin.close()
    process.wait()

ratios = sorted(mine / theirs for theirs, mine in pairs)
result = {
    "model": options.model, "batch": options.batch, "threads": options.threads, "pairs": len(pairs),
    "torch_ms": statistics.median(theirs for theirs, _ in pairs),
    "step_ms": statistics.median(mine for _, mine in pairs),
    "ratio": statistics.median(ratios),
}
print(f"{options.model} batch {options.batch} threads {options.threads}: PyTorch {result['torch_ms']:.2f} ms, "
      f"peal {result['step_ms']:.2f} ms; ratio, median of {len(pairs)} pairs: {result['ratio']:.3f} "
      f"(least {ratios[0]:.3f}, most {ratios[-1]:.3f})")
if options.json:
    options.json.write_text(json.dumps(result) + "\n")
