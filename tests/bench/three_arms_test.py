# SPDX-License-Identifier: Apache-2.0
"""bench/peers/gpt_accuracy.py refuses ranks among which a batch does not part before it runs anything: there is no program.
   three_arms_test.py GPT_ACCURACY_PY"""
import subprocess
import sys

for ranks in (0, -1, 3):
    command = [sys.executable, sys.argv[1], "/no/such/build", "--data", "/no/such/text", "--batch", "32", "--ranks", str(ranks)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    wanted = f"--ranks {ranks}: a batch of 32 does not part among so many as equal batches\n"
    assert done.returncode == 1 and done.stderr == wanted, f"status {done.returncode}\n{done.stdout}{done.stderr}"
