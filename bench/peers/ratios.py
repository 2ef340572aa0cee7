#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# peal beside PyTorch (training steps) and LibTorch (what an op costs): two programs live at once, pinned to the same
# cores, and take turns (A B A B), so that whatever the machine does, it does to both. Prints one table: both medians
# and the median of the ratios pair by pair, with its quartiles; the ratio of processor time, which is the one to trust
# for one thread while others use the machine: wall time favours shorter bursts there; and the most memory that steps
# took, beyond what there was before the model, with its ratio. Says what it leaves out where a peer is not installed.
#
#   bench/peers/ratios.py BUILD_FOLDER [--what basicnet gpt_1024 overhead] [--best] [--precision f32 bf16] [--threads 1 2]
#                         [--pairs N] [--batch N] [--python FILE] [--blas FOLDER] [--libtorch ROOT] [--json FILE]
#   bench/peers/ratios.py BUILD_FOLDER --device cuda      the table of models, batches and precisions of GPU_STEPS
#
# With --best each row's peer is the fastest of PyTorch's settings that may matter to the model (torch_jobs.py: attention
# by hand or scaled_dot_product_attention, channels_last; torch.compile where there is a compiler), by a short trial of
# each. The optimizer is always the fastest of its own. The models are those of `step_time --list`.
import argparse
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys

sys.dont_write_bytecode = True
from turns import Failed, blas_of, end, heard, peer_environment, ratios, start, turn  # noqa: E402

USUAL = ["basicnet", "mlp", "gpt", "resnet18", "tabular", "awd_lstm", "overhead"]
# On a GPU: model, batch, steps in a group, precision, and whether peal replays a graph beside PyTorch's eager steps.
GPU_STEPS = [("gpt2", 8, 3, "bf16", False), ("basicnet", 64, 100, "f32", True), ("resnet18", 256, 10, "bf16", False),
             ("basicnet", 64, 100, "f32", False), ("basicnet", 1024, 50, "f32", False),
             ("resnet18", 256, 10, "tf32", False), ("resnet18", 256, 10, "f32", False)]
DEBIAN_LIBRARIES = "usr/lib/x86_64-linux-gnu"
HERE = pathlib.Path(__file__).resolve().parent

parser = argparse.ArgumentParser()
parser.add_argument("build", type=pathlib.Path)
parser.add_argument("--what", nargs="+", default=USUAL, help=f"models, and what an op costs; default: {' '.join(USUAL)}")
parser.add_argument("--best", action="store_true", help="choose PyTorch's settings by trial")
parser.add_argument("--precision", nargs="+", choices=["f32", "bf16"], default=["f32"])
parser.add_argument("--threads", type=int, nargs="+", default=[1])
parser.add_argument("--batch", type=int, help="of every model; default: its own")
parser.add_argument("--device", default="cpu", help="cuda: the models of GPU_STEPS there")
parser.add_argument("--pairs", type=int, default=15)
parser.add_argument("--python", default="/usr/bin/python3", help="the interpreter that has torch")
parser.add_argument("--blas", type=pathlib.Path, default=pathlib.Path("/") / DEBIAN_LIBRARIES / "openblas-openmp",
                    help="folder of the libblas.so.3 that PyTorch is to use")
parser.add_argument("--libtorch", type=pathlib.Path, default=pathlib.Path("/"),
                    help="root under which Debian's libtorch-dev is unpacked")
parser.add_argument("--json", type=pathlib.Path)
options = parser.parse_args()
on_cpu = options.device == "cpu"
results, skipped, failed, blas_used = [], [], [], set()


def alternate(peer, mine):
    """Pairs of what both print, after one turn each that does not count."""
    turn(peer), turn(mine)
    pairs = [(turn(peer), turn(mine)) for _ in range(options.pairs)]
    end(peer, mine)
    return pairs


def add(name, threads, unit, pairs, at=0, **further):
    """pairs of what both print: wall and processor time from place `at` on."""
    wall = [(theirs[at], mine[at]) for theirs, mine in pairs]
    low, middle, high = ratios([mine for _, mine in wall], [theirs for theirs, _ in wall])
    results.append({
        "what": name, "threads": threads, "unit": unit, "pairs": len(pairs),
        "peer": statistics.median(theirs for theirs, _ in wall),
        "peal": statistics.median(mine for _, mine in wall),
        "ratio": middle,
        "processor_ratio": statistics.median(mine[at + 1] / theirs[at + 1] for theirs, mine in pairs),
        "low": low, "high": high, **further})


def peak(command, threads):
    """The most MiB that steps took: resident, beyond what was before the model; of tensors on a device."""
    done = subprocess.run([str(part) for part in [*command, "--memory"]], capture_output=True, text=True,
                          env={**os.environ, "OMP_NUM_THREADS": str(threads)})
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))} --memory: {done.stderr.strip()}")
    before, most = map(int, done.stdout.split())
    return (most - before) / (1 << 20)


def torch_started(same, threads, settings):
    """The peer, warm; how many parameters it has, and its optimizer."""
    command = [options.python, HERE / "torch_step.py", *same, "--with", *settings]
    peer = start(command, peer_environment(options.blas) if on_cpu else dict(os.environ), threads, on_cpu)
    parameters, optimizer = heard(peer)
    return peer, int(parameters), optimizer


def trial(title, same, threads, tries):
    """The fastest of all sets of settings: by the least of a few turns of each, one after the other."""
    times = {}
    for count in range(len(tries) + 1):
        for settings in itertools.combinations(tries, count):
            try:
                peer, _, _ = torch_started(same, threads, settings)
                turn(peer)
                times[settings] = min(turn(peer)[0] for _ in range(5))
                end(peer)
            except Failed as error:
                print(f"LEFT OUT {title} with {' '.join(settings)}: {error}", file=sys.stderr)
    if not times:
        raise Failed("no settings of PyTorch's could be measured")
    told = ", ".join(f"{' + '.join(settings) or 'none'} {ms:.4g}" for settings, ms in times.items())
    return list(min(times, key=times.get)), told


def step(name, batch, steps, precision, threads, graph=False):
    title = f"{name} {batch} {precision}{' graph' if graph else ''}"
    same = ["--model", name, "--batch", batch, "--threads", threads, "--precision", precision, "--device", options.device]
    timed = [*same, "--steps", steps]
    mine = [options.build / "bench" / "step_time", *(["--graph"] if graph else [])]
    try:
        settings, told = [] if on_cpu else ["sdpa"], ""
        if options.best:
            settings, told = trial(title, timed, threads, torch["tries"][name])
        peer, parameters, optimizer = torch_started(timed, threads, settings)
        peal = start([*mine, *timed, "--on-demand"], dict(os.environ), threads, on_cpu)
        own = int(heard(peal)[0])
        if own != parameters:
            end(peer, peal)
            raise Failed(f"PyTorch's has {parameters} parameters and peal's {own}: they are not the same model")
        if on_cpu and not torch["mkl"]:
            blas_used.add(blas_of(peer))
        pairs = alternate(peer, peal)
        # Steps are few but more than one, whose optimizer makes its state last. Without compile, whose compiler would be
        # most of what is resident.
        few = [*same, "--steps", 3 if on_cpu else steps]
        eager = [word for word in settings if word != "compile"]
        memory = [peak([options.python, HERE / "torch_step.py", *few, "--optimizer", optimizer, "--with", *eager], threads),
                  peak([*mine, *few], threads)]
    except (Failed, BrokenPipeError) as error:
        failed.append(f"{title}, threads {threads}: {error}")
        return
    settings = [*settings, optimizer]
    print(f"{title}, threads {threads}: PyTorch with {' + '.join(settings)}{f' (ms: {told})' if told else ''}", flush=True)
    add(title, threads, "ms", pairs, settings=settings, parameters=parameters, peer_memory=memory[0], peal_memory=memory[1])


def show(row):
    memory = ""
    if "peer_memory" in row:
        theirs, mine = row["peer_memory"], row["peal_memory"]
        memory = f"   {theirs:>7.0f} MiB {mine:>7.0f} MiB {mine / theirs:>7.3f}"
    print(f"{row['what']:<30} {row['threads']:>7} {row['peer']:>9.3f} {row['unit']} {row['peal']:>9.3f} {row['unit']} "
          f"{row['ratio']:>7.3f} {row['processor_ratio']:>7.3f}   {row['low']:.3f} {row['high']:.3f}, {row['pairs']}{memory}",
          flush=True)


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
    peer = start([program], peer_environment(options.blas), 1)
    turn(peer)
    blas_used.add(blas_of(peer))
    pairs = alternate(peer, start([options.build / "bench" / "op_overhead", "--on-demand"], dict(os.environ), 1))
    for i, name in enumerate(["add of one element, recorded", "chain of 100 products, an op", "tiny perceptron, step"]):
        add(name, 1, "us", pairs, 2 * i)


listed = subprocess.run([str(options.build / "bench" / "step_time"), "--list"], capture_output=True, text=True, check=True)
models = {name: (int(batch), int(steps)) for name, batch, steps in map(str.split, listed.stdout.splitlines())}
for what in options.what:
    if what not in models and what != "overhead":
        parser.error(f"--what {what}: expected overhead or one of {', '.join(models)}")
asked = subprocess.run([options.python, str(HERE / "torch_step.py"), "--list"], capture_output=True, text=True)
torch = json.loads(asked.stdout) if asked.returncode == 0 else None
if torch is None:
    skipped.append(f"training steps: {options.python} has no torch (Debian: apt-get install python3-torch)")
else:
    lacking = set(models) ^ set(torch["tries"])
    if lacking:
        sys.exit(f"ratios: only one of step_time and torch_jobs.py has {', '.join(sorted(lacking))}")
    print(f"PyTorch {torch['version']}, {len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}", flush=True)
if on_cpu and "overhead" in options.what:
    overhead()
if torch and on_cpu:
    steps_of = [name for name in options.what if name != "overhead"]
    for name, precision, threads in itertools.product(steps_of, options.precision, options.threads):
        step(name, options.batch or models[name][0], models[name][1], precision, threads)
elif torch:
    for name, batch, steps, precision, graph in GPU_STEPS:
        if name in options.what or name == "gpt2":
            before = len(results)
            step(name, batch, steps, precision, 1, graph)
            for row in results[before:]:  # at once: such a machine may be lent for minutes
                show(row)

if results:
    print(f"{'what':<30} {'threads':>7} {'peer':>12} {'peal':>12} {'ratio':>7} {'of CPU':>7}   {'quartiles, pairs':<16} "
          f"{'peer':>9} {'peal':>13} {'ratio':>7}")
for row in results:
    show(row)
for path in sorted(blas_used):
    if not any(fast in path for fast in ("openblas", "mkl", "blis")):
        print(f"WARNING: PyTorch computed its products with {path or 'an unknown BLAS'}, which may be the slow reference: "
              "these ratios flatter peal (Debian: apt-get install libopenblas0-openmp, or --blas FOLDER)",
              file=sys.stderr)
for line in skipped:
    print(f"SKIPPED {line}", file=sys.stderr)
for line in failed:
    print(f"FAILED {line}", file=sys.stderr)
if options.json:
    options.json.write_text(json.dumps(results) + "\n")
sys.exit(1 if failed else 0 if results else 77)
