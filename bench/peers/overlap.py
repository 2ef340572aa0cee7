#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# How much of its communication DDP hides behind backward, peal beside PyTorch over Gloo: two ranks of one core each, in
# two network namespaces that a pair of virtual interfaces joins, at a rate (tbf) at which the gradients take about as
# long as backward. Arms take turns: ranks that train alone, DDP without overlap (peal's `late`), and DDP. Prints a row
# for each arm:
#
#   wire         the time that all gradients need on the wire, at that rate
#   exposed      the step less that of ranks that train alone, pair by pair: communication that compute does not hide
#                (the network's own work on the ranks' cores is a part of it)
#   last bucket  the wire's time for it: when it is sent, nothing is left to compute
#   beyond it    what is exposed more than that, as a share of the wire's time
#   waits        how long peal did nothing but wait for gradients
#   not hidden   what it waited more than for the last bucket, as a share of the wire's time; the aim is 0.10
#
# Needs root, iproute2 and Open MPI.
#
#   bench/peers/overlap.py BUILD_FOLDER [--what basicnet resnet18 gpt] [--share 1.0] [--pairs 10]
#                          [--python PYTHON_WITH_TORCH] [--bucket-kib N] [--json FILE]
import argparse
import atexit
import contextlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
from turns import NO_TRIMMING, Program, ratios  # noqa: E402
from two_hosts import PLACES, call, connect, limit, need  # noqa: E402

BATCHES = {"basicnet": (64, 5), "mlp": (128, 20), "resnet18": (32, 1), "gpt": (8, 2)}  # of a rank; steps of a turn
HERE = pathlib.Path(__file__).resolve().parent

parser = argparse.ArgumentParser()
parser.add_argument("build", type=pathlib.Path)
parser.add_argument("--what", nargs="+", choices=list(BATCHES), default=["basicnet", "resnet18", "gpt"])
parser.add_argument("--share", type=float, default=1.0, help="of backward that the wire's time is")
parser.add_argument("--pairs", type=int, default=10)
parser.add_argument("--bucket-kib", type=int, help="of peal's DDP; default: its own choice")
parser.add_argument("--python", default="/usr/bin/python3", help="the interpreter that has torch")
parser.add_argument("--json", type=pathlib.Path)
options = parser.parse_args()
need("overlap.py", "ip", "tc", "mpirun")

folder = pathlib.Path(tempfile.mkdtemp(prefix="peal-overlap."))
atexit.register(shutil.rmtree, folder, ignore_errors=True)
agent, rank_script = folder / "agent", folder / "rank"
agent.write_text(f"""#!/bin/bash
[[ $1 == {PLACES[0][2]} ]] && space={PLACES[0][0]} || space={PLACES[1][0]}
shift
exec ip netns exec "$space" unshare --uts bash -c 'hostname "$0"; eval "$@"' "$space" "$@"
""")
# Two nodes on one machine: what ranks share is the wire alone.
rank_script.write_text("""#!/bin/bash
export PEAL_NODE=node$OMPI_COMM_WORLD_RANK PEAL_LOG=error OMP_NUM_THREADS=1
exec taskset -c "$OMPI_COMM_WORLD_RANK" "$@"
""")
for script in (agent, rank_script):
    script.chmod(0o755)
environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "OMP_NUM_THREADS": "1"}
environment.pop("OPENBLAS_CORETYPE", None)
peers = {**environment, **NO_TRIMMING, "PYTHONDONTWRITEBYTECODE": "1", "MKL_NUM_THREADS": "1"}


def start_peal(model, batch, steps):
    program = (options.build / "bench" / "ddp_step").resolve()
    hosts = ",".join(f"{address}:1" for _, _, address in PLACES)
    mpirun = ["mpirun", "--host", hosts, "--mca", "plm_rsh_agent", agent, "--mca", "btl", "tcp,self", "--mca",
              "btl_tcp_if_include", "10.77.0.0/24", "--mca", "oob_tcp_if_include", "10.77.0.0/24", "--bind-to", "none",
              "-n", "2", rank_script, program, "--on-demand", "--model", model,
              "--batch", batch, "--steps", steps, "--arms", "alone,late,ddp",
              *(["--bucket-kib", options.bucket_kib] if options.bucket_kib else [])]
    first = PLACES[0][0]
    in_first = ["ip", "netns", "exec", first, "unshare", "--uts", "bash", "-c", 'hostname "$0"; exec "$@"', first]
    return Program("peal", program, [[*in_first, *mpirun]], environment, lambda arm: f"{arm}\n", stderr=subprocess.DEVNULL)


def start_torch(model, batch, steps):
    meeting = folder / f"torch.{model}"
    script = HERE / "torch_ddp_step.py"
    commands = [["ip", "netns", "exec", space, "env", f"GLOO_SOCKET_IFNAME={link}", options.python, script, "2", model, batch,
                 rank, meeting] for rank, (space, link, _) in enumerate(PLACES)]
    return Program("PyTorch", script, commands, peers, lambda arm: f"{arm} {steps}\n", stderr=subprocess.DEVNULL)


connect()
has_torch = (shutil.which(options.python) is not None and
             call(options.python, "-c", "import torch.distributed", check=False).returncode == 0)
ARMS = {"peal": ["alone", "late", "ddp"], "PyTorch": ["alone", "ddp"]}


def row_of(arm, times, last_ms, wire):
    """Of an arm, beside the program's ranks alone; milliseconds."""
    row = {"step": statistics.median(times[arm])}
    if arm != "alone":
        row["exposed"] = statistics.median(with_it - without for with_it, without in zip(times[arm], times["alone"]))
        row["of_wire"] = row["exposed"] / wire
        row["last_bucket"] = last_ms
        row["beyond_it"] = (row["exposed"] - last_ms) / wire
    return row


def text_of(row):
    return (f"{row['step']:9.2f}" + "".join(f" {row[name]:{width}.2f}" if name in row else f" {'':{width}}" for name, width in
                                            (("exposed", 10), ("of_wire", 8), ("last_bucket", 12), ("beyond_it", 10),
                                             ("waits", 9), ("not_hidden", 11))))


results = []
print(f"{'':<9} {'wire ms':>8}  {'program':<8}{'arm':<6} {'step ms':>9} {'exposed ms':>10} {'of wire':>8} {'last bucket':>12} "
      f"{'beyond it':>10} {'waits ms':>9} {'not hidden':>11}  {'peal / PyTorch':>20}")
for model in options.what:
    batch, steps = BATCHES[model]
    limit(f"{int(1.25e9) * 8}bit")
    with contextlib.ExitStack() as stack:
        programs = [stack.enter_context(start(model, batch, steps)) for start in
                    ([start_peal, start_torch] if has_torch else [start_peal])]
        for program in programs[::-1]:  # until all stand still
            program.turn("alone")
        bytes_sent = programs[0].turn("late")[-1]  # in one bucket
        alone = statistics.median(programs[0].turn("alone")[0] for _ in range(5))
        # A step is forward, backward and the optimizer; backward is about six tenths of it.
        wire = options.share * 0.6 * alone
        limit(f"{int(bytes_sent / wire * 1e3) * 8}bit")
        times = {p.name: {arm: [] for arm in ARMS[p.name]} for p in programs}
        last, waits = {}, {arm: [] for arm in ARMS["peal"]}
        for pair in range(options.pairs):
            for program in programs if pair % 2 == 0 else programs[::-1]:
                arms = ARMS[program.name]
                for arm in arms if pair % 2 == 0 else arms[::-1]:
                    ms, *waited, last[program.name, arm] = program.turn(arm)
                    times[program.name][arm].append(ms)
                    if waited:
                        waits[arm] += waited
    found = {"model": model, "wire_ms": wire, "bytes": bytes_sent, "ms": times, "rows": {}}
    for program in programs:
        for arm in ARMS[program.name]:
            row = row_of(arm, times[program.name], last[program.name, arm] / bytes_sent * wire, wire)
            if program.name == "peal" and arm != "alone":
                row["waits"] = statistics.median(waits[arm])
                row["not_hidden"] = max(0.0, (row["waits"] - row["last_bucket"]) / wire)
            line = f"{model:<9} {wire:8.1f}  {program.name:<8}{arm:<6} {text_of(row)}"
            if program.name == "peal" and has_torch and arm in ARMS["PyTorch"]:
                low, middle, high = ratios(times["peal"][arm], times["PyTorch"][arm])
                line += f"  {middle:8.3f} ({low:.3f} {high:.3f})"
                row["peal_over_pytorch"] = [low, middle, high]
            print(line.rstrip(), flush=True)
            found["rows"][f"{program.name} {arm}"] = row
    results.append(found)
if not has_torch:
    print(f"LEFT OUT PyTorch: {options.python} has no torch (--python)")
if options.json:
    options.json.write_text(json.dumps(results, indent=1) + "\n")
