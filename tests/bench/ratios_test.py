# SPDX-License-Identifier: Apache-2.0
"""bench/peers/ratios.py beside the PyTorch of this python3: its table, what it chose, and what it says of wrong words.
   ratios_test.py RATIOS_PY BUILD_FOLDER"""
import json
import os
import re
import subprocess
import sys
import tempfile

script, build = sys.argv[1:]


def run(*words):
    return subprocess.run([sys.executable, script, build, "--python", sys.executable, *words], capture_output=True,
                          text=True, timeout=250, stdin=subprocess.DEVNULL,
                          env={**os.environ, "CXX": "/no/such/compiler"})  # torch.compile takes half a minute


refused = run("--what", "mlp", "perceptron")
assert refused.returncode == 2 and "--what perceptron: expected overhead or one of awd_lstm, basicnet, " in refused.stderr, refused

if subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode != 0:
    absent = run("--what", "mlp")
    assert absent.returncode == 77 and "SKIPPED training steps: " in absent.stderr, absent
    print("SKIPPED: this python3 has no torch (Debian: apt-get install python3-torch)")
    sys.exit(77)

with tempfile.TemporaryDirectory() as folder:
    name = os.path.join(folder, "a.json")
    done = run("--what", "mlp", "--best", "--batch", "2", "--pairs", "2", "--precision", "f32", "bf16", "--json", name)
    assert done.returncode == 0, done
    with open(name) as file:
        rows = json.load(file)
assert [row["what"] for row in rows] == ["mlp 2 f32", "mlp 2 bf16"], rows
for row in rows:
    assert row["parameters"] == 669706 and row["settings"][-1] in ("plain", "foreach", "fused"), row
    assert 0 < row["low"] <= row["ratio"] <= row["high"] and row["peer_memory"] > 0 and row["peal_memory"] > 0, row
    assert f"{row['what']}, threads 1: PyTorch with {' + '.join(row['settings'])} (ms: none " in done.stdout, done.stdout
    assert re.search(rf"^{row['what']} +1 +[\d.]+ ms +[\d.]+ ms +[\d.]+ +[\d.]+   [\d.]+ [\d.]+, 2 +\d+ MiB +\d+ MiB +[\d.]+$",
                     done.stdout, re.MULTILINE), done.stdout
