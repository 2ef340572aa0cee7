# SPDX-License-Identifier: Apache-2.0
"""bench/peers/turns.py: a program's ranks stand still between its turns, and nobody else's; it ends.  turns_test.py PEERS"""
import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.append(sys.argv[1])
import turns  # noqa: E402
from turns import Program, ratios  # noqa: E402

RANK = """import sys
for line in sys.stdin:
    if line == "end\\n": sys.exit(1)
    print(len(line), flush=True)
"""


def stands_still(pid):
    for _ in range(100):
        if pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T":
            return True
        time.sleep(0.01)
    return False


def program(name, file, daemon=False):
    words = [sys.executable, file]
    return Program(name, file, [["bash", "-c", 'setsid -f "$@" <&0; wait', "launcher", *words] if daemon else words],
                   dict(os.environ), lambda arm: f"{arm}\n")


assert ratios([4, 1, 9, 2], [2, 1, 3, 1]) == (2, 2, 3)
with tempfile.TemporaryDirectory() as folder:
    file = pathlib.Path(folder) / "rank.py"
    file.write_text(RANK)
    other = subprocess.Popen([sys.executable, file], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with program("one", file) as one, program("daemon's", file, daemon=True) as two:
        assert one.turn("three") == [6] and two.turn("four") == [5] and one.turn("a") == [2]
        for each in (one, two):
            (rank,) = each.ranks()
            assert stands_still(rank), each.name
        assert one.ranks() != two.ranks()
        other.stdin.write("\n")
        other.stdin.flush()
        assert other.stdout.readline() == "1\n"  # of the same file, and another's
        last = [*one.ranks(), *two.ranks()]
    for _ in range(100):
        if not any(os.path.exists(f"/proc/{rank}") for rank in last):
            break
        time.sleep(0.05)
    else:
        sys.exit(f"ranks {last} are still there")
    other.stdin.close()
    assert other.wait() == 0
    # A launcher that goes on when its ranks have ended, and a rank that does not end, cost no more than a while.
    turns.PATIENCE = 0.3
    deaf = pathlib.Path(folder) / "deaf.py"
    deaf.write_text(RANK + "import time\ntime.sleep(1000)\n")
    begun = time.monotonic()
    with Program("launcher", file, [["bash", "-c", '"$@"; exec sleep 1000', "launcher", sys.executable, file]],
                 dict(os.environ), lambda arm: f"{arm}\n") as late, program("deaf", deaf) as still:
        assert late.turn("a") == [2] and still.turn("a") == [2]
    assert time.monotonic() - begun < 20
    assert late.processes[0].returncode == still.processes[0].returncode == -9
    turns.PATIENCE = 30
    try:
        with program("one", file) as one:
            one.turn("end")
        sys.exit("expected an error")
    except SystemExit as error:
        assert error.code == "turns_test.py: one ended early", error.code
