# SPDX-License-Identifier: Apache-2.0
"""bench/ddp_step: a row for each arm, the same in its JSON, groups on demand.  ddp_step_test.py PEAL_RUN PROGRAM"""
import json
import os
import re
import subprocess
import sys
import tempfile

launcher, program = sys.argv[1:]


def run(*words, say=""):
    done = subprocess.run([launcher, "-n", "2", program, "--model", "mlp", "--batch", "2", "--steps", "2", *words],
                          input=say, capture_output=True, text=True, timeout=100)
    return done.returncode, done.stdout, done.stderr


with tempfile.TemporaryDirectory() as folder:
    name = os.path.join(folder, "a.json")
    status, out, err = run("--pairs", "3", "--json", name)
    assert status == 0, out + err
    with open(name) as file:
        results = json.load(file)
rows = dict(re.findall(r"^(\w+) +[\d.]+ +[\d.]+  \([\d.]+ [\d.]+\) +([\d.]+ +\d+)$", out, re.MULTILINE))
assert list(rows) == ["alone", "barrier", "late", "ddp"], out
assert rows["alone"].split() == ["0.000", "0"] and rows["late"].split()[1] == "1" and rows["ddp"].split()[1] == "2", out
assert results["ranks"] == 2 and results["gradient_bytes"] == 4 * 669706, results
for arm in results["arms"].values():
    assert len(arm["ms"]) == 3 and all(ms > 0 for ms in arm["ms"]), results

status, out, err = run("--arms", "ddp,alone", "--on-demand", say="alone\nddp\n")
assert status == 0 and re.fullmatch(r"([\d.]+ [\d.]+\n){2}", out), out + err
status, out, err = run("--arms", "ddp,none")
assert status != 0 and "there is no arm 'none'" in err, err
