# SPDX-License-Identifier: Apache-2.0
"""bench/scaling: a row for each number of ranks, weak and strong, the same in its JSON and its plot; and on paper, from
the profile of a rank.  scaling_test.py PEAL_RUN FOLDER_OF_THE_PROGRAMS"""
import json
import os
import re
import subprocess
import sys
import tempfile

launcher, programs = sys.argv[1:]


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True, timeout=100)
    return done.returncode, done.stdout, done.stderr


scaling, on_paper = (os.path.join(programs, name) for name in ("scaling", "scaling_on_paper"))
with tempfile.TemporaryDirectory() as folder:
    place = lambda name: os.path.join(folder, name)
    status, out, err = run(launcher, "-n", "3", scaling, "--model", "mlp", "--batch", "6", "--steps", "1", "--turns", "2",
                           "--samples", "600", "--plot", place("a.svg"), "--json", place("a.json"))
    assert status == 0, out + err
    with open(place("a.json")) as file:
        results = json.load(file)
    rows = re.findall(r"^ +(\d+) +(\d+) +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+) % +([\d.]+) +([\d.]+) %$", out, re.M)
    assert [row[:2] for row in rows] == [("1", "6"), ("2", "6"), ("3", "6"), ("1", "6"), ("2", "3"), ("3", "2")], out
    assert all(float(row[2]) > 0 and float(row[6]) > 0 for row in rows), out
    assert rows[0][4:6] == ("1.00", "100.0") and rows[3][4:6] == ("1.00", "100.0"), out
    assert [line["ranks"] for line in results["weak"]] == [1, 2, 3], results
    assert [line["batch"] for line in results["strong"]] == [6, 3, 2], results
    # A batch that the ranks do not divide: what counts is how many samples go through.
    status, out, err = run(launcher, "-n", "3", scaling, "--model", "mlp", "--batch", "5", "--steps", "1", "--turns", "1",
                           "--json", place("odd.json"))
    assert status == 0, out + err
    with open(place("odd.json")) as file:
        strong = json.load(file)["strong"]
    assert [line["batch"] for line in strong] == [5, 2, 1], strong
    rates = [line["ranks"] * line["batch"] / line["seconds"] for line in strong]
    said = re.findall(r"^ +\d+ +\d+ +[\d.]+ +[\d.]+ +([\d.]+) +([\d.]+) %", out, re.M)[3:]
    for rate, line, (speed_up, efficiency) in zip(rates, strong, said, strict=True):
        assert abs(float(speed_up) - rate / rates[0]) < 0.006, (out, strong)
        assert abs(float(efficiency) - 100 * rate / rates[0] / line["ranks"]) < 0.06, (out, strong)

    with open(place("a.svg")) as file:
        drawn = file.read()
    assert drawn.count(">measured</text>") == 2 and "(strong): speed-up" in drawn, drawn

    status, out, err = run(scaling, "--model", "mlp", "--batch", "2", "--turns", "1", "--profile", place("mlp.json"))
    assert status == 0, out + err
    with open(place("mlp.json")) as file:
        profile = json.load(file)
    assert len(profile["parameters"]) == 6 and sum(each[1] for each in profile["parameters"]) == 669706, profile
    # The last layer's gradients come first, and all before backward's end.
    ready = {name: seconds for name, _, seconds in profile["parameters"]}
    first, last = [name for name in ready if name.endswith("weight")][0::2]
    assert 0 <= ready[last] <= ready[first] <= profile["backward"], profile

    status, out, err = run(on_paper, place("mlp.json"), "--ranks", "1,16", "--step-ms", "10", "--what-if", "--plot",
                           place("b.svg"))
    assert status == 0 and re.search(r"^ +1 +2( +100\.0 % \( +0\.0 ms\)){3}$", out, re.M), out + err
    percent = [float(value) for value in re.findall(r"([\d.]+) %", re.search(r"^ +16 .*$", out, re.M)[0])]
    assert len(percent) == 3 and all(0 < value <= 100 for value in percent), out
    assert out.count("*\n") == 1 and "all in one" in out, out
    with open(place("b.svg")) as file:
        assert ">hierarchical</text>" in file.read()
    # Buckets are those that DDP would have there, unless one asks for others; gradients come as in the profile.
    sizes = [1 << 18] * 64
    with open(place("even.json"), "w") as file:
        json.dump({"model": "even", "batch": 1, "before": 0.01, "backward": 0.064, "after": 0.01,
                   "parameters": [[f"p{i}", size, 0.001 * (i + 1)] for i, size in enumerate(sizes)]}, file)
    buckets = {}
    for extra in [(), ("--bucket-mib", "25"), ("--bucket-mib", "1")]:
        status, out, err = run(on_paper, place("even.json"), "--ranks", "8,16", "--algorithms", "ring", *extra)
        assert status == 0, out + err
        rows = re.findall(r"^ +(\d+) +(\d+) +[\d.]+ % \( *([\d.]+) ms\)$", out, re.M)
        assert [row[0] for row in rows] == ["8", "16"], out
        buckets[extra[1:]] = [int(row[1]) for row in rows]
        exposed = float(rows[1][2])
    assert buckets["25",] == [4, 4] and buckets["1",] == [64, 64], buckets
    assert buckets[()][0] == 4 and buckets[()][1] > 4, buckets
    # Of 64 that come one after the other, the wire, which is quicker, has but the last to do.
    assert 0 < exposed < 1, out
    # A slower network is no better.
    status, out, err = run(on_paper, place("mlp.json"), "--ranks", "16", "--step-ms", "10", "--gigabits", "0.1")
    slower = [float(value) for value in re.findall(r"([\d.]+) %", re.search(r"^ +16 .*$", out, re.M)[0])]
    assert all(a <= b for a, b in zip(slower, percent)) and slower[0] < 50, out + err

    with open(place("bad.json"), "w") as file:
        file.write('{"model": "x"}')
    status, out, err = run(on_paper, place("bad.json"))
    assert status == 2 and "not a profile that bench/scaling/scaling wrote" in err, err
    status, out, err = run(on_paper, place("mlp.json"), "--ranks", "3", "--algorithms", "none")
    assert status == 2 and "there is no all_reduce by 'none'" in err, err
