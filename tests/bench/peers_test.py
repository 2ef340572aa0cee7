# SPDX-License-Identifier: Apache-2.0
"""bench/peers/all_reduce.py beside the system's MPI alone: its tables, its picture, what it says that it left out.
   peers_test.py ALL_REDUCE_PY BUILD_FOLDER"""
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
with tempfile.TemporaryDirectory() as folder:
    svg, numbers = os.path.join(folder, "a.svg"), os.path.join(folder, "a.json")
    command = [sys.executable, script, build, "-n", "2", "-b", "64", "-e", "4K", "-f", "64", "--turns", "2", "--python",
               "/no/such/python", "--plot", svg, "--json", numbers]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
    out = done.stdout
    assert done.returncode == 0, f"status {done.returncode}\n{out}{done.stderr}"
    with open(numbers) as file:
        results = json.load(file)
    names = [text.text for text in xml.etree.ElementTree.parse(svg).iter("{http://www.w3.org/2000/svg}text")]

# Both tables: a row a size, every program's time in it, and two ratios with their quartiles.
assert out.startswith(shlex.quote(script)) and "Elements that were wrong: 0\n" in out, out
assert "LEFT OUT Gloo: " in out and "LEFT OUT Intel MPI, MPICH and another Open MPI: " in out, out
rows = re.findall(r"^ +(64|4K)  (.*)$", out, re.MULTILINE)
assert [size for size, _ in rows] == ["64", "4K"] * 2, out
assert all(len(re.findall(r"[\d.]+ \([\d.]+ [\d.]+\)", row)) == 2 for _, row in rows), out
for kind in ("single", "loop"):
    assert [row["size"] for row in results[kind]] == [64, 4096], results
    for row in results[kind]:
        mine = [name for name in row["us"] if name.startswith("peal")]
        assert mine == ["peal", "peal, ordinary buffers", "peal, messages"] and len(row["us"]) > 3, row
        assert all(value > 0 for value in row["us"].values()), row
        low, middle, high = row["peal / best"]
        assert 0 < low <= middle <= high, row
        assert set(row["us"]) <= set(names), (row, names)
assert results["wrong"] == 0 and len(results["left_out"]) >= 2, results
