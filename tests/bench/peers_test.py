# SPDX-License-Identifier: Apache-2.0
"""bench/peers/collectives.py beside the system's MPI alone: its tables, its picture, what it says that it left out.
   peers_test.py COLLECTIVES_PY BUILD_FOLDER"""
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

if not shutil.which("mpicxx"):
    print("SKIPPED: no mpicxx, so there is no MPI to compare with (Debian: apt-get install libopenmpi-dev)")
    sys.exit(77)
script, build = sys.argv[1:]


def run(*further):
    """What it prints, and its numbers."""
    command = [sys.executable, script, build, "-b", "64", "-f", "64", "--python", "/no/such/python", "--json", numbers, *further]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout}{done.stderr}"
    with open(numbers) as file:
        found = json.load(file)
    assert found["wrong"] == 0, done.stdout
    return done.stdout, found


with tempfile.TemporaryDirectory() as folder:
    svg, numbers = os.path.join(folder, "a.svg"), os.path.join(folder, "a.json")
    out, results = run("-e", "4K", "--turns", "2", "--plot", svg)
    names = [text.text for text in xml.etree.ElementTree.parse(svg).iter("{http://www.w3.org/2000/svg}text")]
    few = ["-e", "64", "--turns", "1"]
    all_out, all_results = run("--what", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", *few)
    _, three_results = run("--what", "all_gather", "-n", "3", *few)  # whose blocks do not fill 64 bytes

# Both tables: a row a size, every program's time in it, and two ratios with their quartiles.
assert out.startswith(shlex.quote(script)) and "Elements that were wrong: 0\n" in out, out
assert "LEFT OUT Gloo: " in out and "LEFT OUT Intel MPI, MPICH and another Open MPI: " in out, out
rows = re.findall(r"^ +(64|4K)  (.*)$", out, re.MULTILINE)
assert [size for size, _ in rows] == ["64", "4K"] * 2, out
assert all(len(re.findall(r"[\d.]+ \([\d.]+ [\d.]+\)", row)) == 2 for _, row in rows), out
assert len(results["results"]) == 1, results
for kind in ("single", "loop"):
    table = results["results"][0][kind]
    assert [row["size"] for row in table] == [64, 4096], results
    for row in table:
        mine = [name for name in row["us"] if name.startswith("peal")]
        assert mine == ["peal", "peal, ordinary buffers", "peal, messages"] and len(row["us"]) > 4, row
        assert row["us"]["memory's limit"] > 0 and all(value > 0 for value in row["us"].values()), row
        low, middle, high = row["peal / best"]
        assert 0 < low <= middle <= high, row
        assert set(row["us"]) <= set(names), (row, names)
assert len(results["left_out"]) >= 2, results

# The other operations, and all ratios in one table.
assert re.findall(r"^(\w+), 2 ranks: single calls", all_out, re.MULTILINE) == [
    "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall"], all_out
overview = all_out[all_out.index("Single calls, peal's time over the best peer's"):]
assert "all_gather 2  reduce_scatter 2   broadcast 2      reduce 2    alltoall 2" in overview, overview
assert len(re.findall(r"^ +64(?: +[\d.]+  [\d.]+){5}$", overview, re.MULTILINE)) == 1, overview
for result in [*all_results["results"], *three_results["results"]]:
    for row in result["single"] + result["loop"]:
        assert row["us"]["peal"] > 0 and row["us"]["peal, messages"] > 0, row
assert [result["ranks"] for result in three_results["results"]] == [3], three_results
