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
ROW = re.compile(r"^(\w+) +[\d.]+ +[\d.]+  \([\d.]+ [\d.]+\) +([\d.]+ +\d+|- +0)$", re.MULTILINE)
rows = dict(ROW.findall(out))
assert list(rows) == ["alone", "barrier", "late", "ddp"], out
assert rows["alone"].split() == ["0.000", "0"] and rows["late"].split()[1] == "1" and rows["ddp"].split()[1] == "2", out
assert results["ranks"] == 2 and results["gradient_bytes"] == 4 * 669706, results
for arm in results["arms"].values():
    assert len(arm["ms"]) == 3 and all(ms > 0 for ms in arm["ms"]), results
bytes_of = {name: arm["bucket_bytes"] for name, arm in results["arms"].items()}
assert bytes_of["alone"] == bytes_of["barrier"] == [] and sum(bytes_of["late"]) >= 4 * 669706, results
assert len(bytes_of["ddp"]) == 2 and sum(bytes_of["ddp"]) >= 4 * 669706, results

# What options cost, and sharded training, beside DDP as it is.
status, out, err = run("--pairs", "3", "--arms", "ddp,find_unused,digest,zero1,zero2,fsdp")
assert status == 0, out + err
rows = ROW.findall(out)
assert [name for name, _ in rows] == ["ddp", "find_unused", "digest", "zero1", "zero2", "fsdp"], out
assert "to ddp" in out and all(rest.split()[1] == "2" for _, rest in rows[:4]), out

status, out, err = run("--arms", "ddp,alone", "--on-demand", say="alone\nddp\n")
assert status == 0 and re.fullmatch(rf"[\d.]+ 0.0000 0\n[\d.]+ [\d.]+ {bytes_of['ddp'][-1]}\n", out), out + err
status, out, err = run("--arms", "ddp,none")
assert status != 0 and "there is no arm 'none'; there are alone, barrier, late, ddp, find_unused, digest, zero1, zero2, fsdp" in err, err
