#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# peal beside PyTorch (training steps) and LibTorch (what an op costs): two programs live at once, pinned to the same
# cores, and take turns (A B A B), so that whatever the machine does, it does to both. Prints one table: both medians
# and the median of the ratios pair by pair, with its quartiles; then the ratio of processor time, which is the one to
# trust for one thread while others use the machine: wall time favours shorter bursts there. Says what it leaves out
# where a peer is not installed.
#
#   bench/peers/ratios.py BUILD_FOLDER [--what basicnet mlp gpt resnet18 tabular overhead] [--threads 1 2] [--pairs N]
#                         [--batch N] [--blas FOLDER] [--libtorch ROOT] [--json FILE]
#   bench/peers/ratios.py BUILD_FOLDER --device cuda      the table of models, batches and precisions of GPU_STEPS
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

# model: batch, steps in a group
MODELS = {"basicnet": (64, 10), "mlp": (128, 50), "gpt": (8, 3), "resnet18": (32, 1), "tabular": (512, 50),
          "awd_lstm": (64, 1)}
# On a GPU: model, batch, steps in a group, precision, and whether peal replays a graph beside PyTorch's eager steps.
GPU_STEPS = [("basicnet", 64, 100, "f32", False), ("basicnet", 64, 100, "f32", True), ("basicnet", 1024, 50, "f32", False),
             *(("resnet18", 256, 10, precision, False) for precision in ("f32", "tf32", "bf16")),
             ("gpt2", 8, 3, "bf16", False)]
DEBIAN_LIBRARIES = "usr/lib/x86_64-linux-gnu"
HERE = pathlib.Path(__file__).resolve().parent

parser = argparse.ArgumentParser()
parser.add_argument("build", type=pathlib.Path)
parser.add_argument("--what", nargs="+", choices=[*MODELS, "overhead"], default=[*MODELS, "overhead"])
parser.add_argument("--threads", type=int, nargs="+", default=[1])
parser.add_argument("--batch", type=int, help="of every model; default: 64, 128, 8, 32, 512, 64")
parser.add_argument("--device", default="cpu", help="cuda: the models of GPU_STEPS there, and their memory")
parser.add_argument("--pairs", type=int, default=15)
parser.add_argument("--python", default="/usr/bin/python3", help="the interpreter that has torch")
parser.add_argument("--blas", type=pathlib.Path, default=pathlib.Path("/") / DEBIAN_LIBRARIES / "openblas-openmp",
                    help="folder of the libblas.so.3 that PyTorch is to use")
parser.add_argument("--libtorch", type=pathlib.Path, default=pathlib.Path("/"),
                    help="root under which Debian's libtorch-dev is unpacked")
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
    if options.blas.is_dir():
        environment["LD_LIBRARY_PATH"] = str(options.blas.resolve())
    return environment


def start(command, environment, threads):
    environment["OMP_NUM_THREADS"] = str(threads)
    environment["OPENBLAS_NUM_THREADS"] = str(threads)
    if options.device != "cpu":  # each launches from a core of its own
        return subprocess.Popen([str(part) for part in command], env=environment, stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, text=True)
    cores = sorted(os.sched_getaffinity(0))[:threads]
    return subprocess.Popen([str(part) for part in command], env=environment, stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True, preexec_fn=lambda: os.sched_setaffinity(0, cores))


def turn(process):
    process.stdin.write("\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        sys.exit(f"ratios: {process.args[0]} ended early")
    return [float(word) for word in line.split()]


def blas_of(process):
    """The file that the process calls for matrix products: Debian's PyTorch takes whatever libblas.so.3 is."""
    for line in pathlib.Path(f"/proc/{process.pid}/maps").read_text().splitlines():
        path = line.split()[-1]
        if "libblas" in path or "openblas" in path or "mkl_rt" in path:
            return os.path.realpath(path)
    return ""


def alternate(peer, mine):
    """Pairs of what both print, after one turn each that does not count."""
    turn(peer), turn(mine)
    blas = blas_of(peer)
    pairs = [(turn(peer), turn(mine)) for _ in range(options.pairs)]
    for process in (peer, mine):
        process.stdin.close()
        process.wait()
    return pairs, blas


results, skipped, blas_used = [], [], set()


def add(name, threads, unit, pairs, at=0):
    """pairs of what both print: wall and processor time from place `at` on."""
    wall = [(theirs[at], mine[at]) for theirs, mine in pairs]
    ratios = sorted(mine / theirs for theirs, mine in wall)
    results.append({
        "what": name, "threads": threads, "unit": unit, "pairs": len(pairs),
        "peer": statistics.median(theirs for theirs, _ in wall),
        "peal": statistics.median(mine for _, mine in wall),
        "ratio": statistics.median(ratios),
        "processor_ratio": statistics.median(mine[at + 1] / theirs[at + 1] for theirs, mine in pairs),
        "low": ratios[len(ratios) // 4], "high": ratios[len(ratios) * 3 // 4],
    })


def step(name, threads):
    batch, steps = options.batch or MODELS[name][0], MODELS[name][1]
    same = ["--model", name, "--batch", batch, "--threads", threads, "--steps", steps]
    pairs, blas = alternate(
        start([options.python, HERE / "torch_step.py", *same], peer_environment(), threads),
        start([options.build / "bench" / "step_time", "--on-demand", *same], dict(os.environ), threads))
    blas_used.add(blas)
    add(f"{name}, batch {batch}", threads, "ms", pairs)


def peak(command):
    """The most MiB of tensors on the device at once."""
    out = subprocess.run([str(part) for part in [*command, "--memory"]], capture_output=True, text=True, check=True)
    return int(out.stdout.split()[1]) / (1 << 20)


def gpu_step(name, batch, steps, precision, graph):
    same = ["--model", name, "--batch", batch, "--steps", steps, "--precision", precision, "--device", options.device]
    peer = [options.python, HERE / "torch_step.py", *same]
    mine = [options.build / "bench" / "step_time", *same, *(["--graph"] if graph else [])]
    title = f"{name} {batch} {precision}{' graph' if graph else ''}"
    try:
        pairs, _ = alternate(start(peer, dict(os.environ), 1), start([*mine, "--on-demand"], dict(os.environ), 1))
        memory = peak(peer), peak(mine)
    except (SystemExit, BrokenPipeError, subprocess.CalledProcessError) as error:  # costs this row alone
        skipped.append(f"{title}: {error}")
        return
    add(title, 1, "ms", pairs)
    results[-1].update(peer_memory=memory[0], peal_memory=memory[1])
    print(f"{title}: most memory {memory[0]:.0f} MiB, peal {memory[1]:.0f} MiB, ratio {memory[1] / memory[0]:.3f}")


def overhead():
    include = options.libtorch / "usr/include"
    if not (include / "torch/csrc/api/include/torch/torch.h").is_file():
        skipped.append(f"overhead: no LibTorch headers under {include} (Debian: apt-get install libtorch-dev)")
        return
    program = options.build / "bench" / "op_overhead_libtorch"
    libraries = options.libtorch / DEBIAN_LIBRARIES
    source = HERE / "op_overhead.cpp"
    newest = max(file.stat().st_mtime for file in (source, HERE.parent / "clock.h"))
    if not program.exists() or program.stat().st_mtime < newest:
        subprocess.run([os.environ.get("CXX", "g++"), "-O3", "-DNDEBUG", "-std=c++17", "-w", str(source), "-o", str(program),
                        f"-I{options.build}/include", f"-I{include}", f"-I{include}/torch/csrc/api/include", f"-L{libraries}",
                        f"-Wl,-rpath-link,{libraries}", "-ltorch", "-ltorch_cpu", "-lc10"], check=True)
    pairs, _ = alternate(start([program], peer_environment(), 1),
                         start([options.build / "bench" / "op_overhead", "--on-demand"], dict(os.environ), 1))
    for i, name in enumerate(["add of one element, recorded", "chain of 100 products, an op", "tiny perceptron, step"]):
        add(name, 1, "us", pairs, 2 * i)


has_torch = subprocess.run([options.python, "-c", "import torch"], capture_output=True).returncode == 0
if options.device != "cpu" and has_torch:
    for row in GPU_STEPS:
        if row[0] in options.what or row[0] == "gpt2":
            gpu_step(*row)
if options.device != "cpu" and not has_torch:
    skipped.append(f"steps on {options.device}: {options.python} has no torch")
for what in options.what if options.device == "cpu" else []:
    if what == "overhead":
        overhead()
    elif has_torch:
        for threads in options.threads:
            step(what, threads)
    else:
        skipped.append(f"{what}: {options.python} has no torch (Debian: apt-get install python3-torch)")

if results:
    print(f"{'what':<30} {'threads':>7} {'peer':>12} {'peal':>12} {'ratio':>7} {'of CPU':>7}   quartiles, pairs")
for row in results:
    print(f"{row['what']:<30} {row['threads']:>7} {row['peer']:>9.3f} {row['unit']} {row['peal']:>9.3f} {row['unit']} "
          f"{row['ratio']:>7.3f} {row['processor_ratio']:>7.3f}   {row['low']:.3f} {row['high']:.3f}, {row['pairs']}")
for path in sorted(blas_used if options.device == "cpu" else []):
    if not any(fast in path for fast in ("openblas", "mkl", "blis")):
        print(f"WARNING: PyTorch computed its products with {path or 'an unknown BLAS'}, which may be the slow reference: "
              "these ratios flatter peal (Debian: apt-get install libopenblas0-openmp, or --blas FOLDER)",
              file=sys.stderr)
for line in skipped:
    print(f"SKIPPED {line}", file=sys.stderr)
if options.json:
    options.json.write_text(json.dumps(results) + "\n")
if options.device != "cpu" and has_torch and skipped:
    sys.exit(1)  # every row of the table is wanted
sys.exit(0 if results else 77)
