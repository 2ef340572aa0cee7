# SPDX-License-Identifier: Apache-2.0
"""What bench/perf has beyond nccl-tests: algorithms, columns, files, fits, pictures, OSU's habits.
   further_test.py PEAL_RUN FOLDER PROGRAM_WITH_WRONG_SENDS"""
import json
import os
import re
import sys
import tempfile
import xml.etree.ElementTree

from perf_run import PROGRAMS, Runner, rows

run, wrong_program = Runner(sys.argv[1], sys.argv[2]), sys.argv[3]

# By every algorithm: thirteen words a row still, and whose it is before it.
out = run.table("all_reduce", 2, "-b 1K -e 16K -f 16 -n 3 --algo all")
ways = re.findall(r"^# by (\w+)(, the group's choice)?$", out, re.MULTILINE)
names = [name for name, chosen in ways if not chosen]
assert len(rows(out)) == len(ways) == len(names) + 2 >= 20 and all(len(words) == 13 for words in rows(out)), out
assert {"ring", "recursive_doubling", "circulant", "rabenseifner"} <= set(names), names
assert all(words[8] == words[12] == "0" for words in rows(out)), out
for name in PROGRAMS[1:8]:
    out = run.table(name, 3, "-b 4K -e 4K -n 2 --algo all")
    assert len(rows(out)) >= 2 and all(w[8] == "0" and w[12] in ("0", "N/A") for w in rows(out)), out

# One of them.
out = run.table("all_reduce", 2, "-b 1K -e 1K -n 5 --algo ring --columns")
words = rows(out)[0]
assert len(words) == 22 and words[13] == "ring" and words[14] == "1024", out  # each rank sends half, twice
assert all(float(word) > 0 for word in words[15:]), words
assert run.table("all_reduce", 2, "-b 1K -e 1K -n 5 --algo native --columns").count(" native ") == 1
for name, words in (("all_reduce", "--algo no_such"), ("sendrecv", "--algo ring")):
    status, out, err = run(name, 1, words, launched=False)
    assert status == 6 and "--algo" in err, (status, out, err)
assert len(rows(run.table("all_reduce", 1, "-b 1K -e 1K -n 5 --columns"))[0]) == 22

with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "out.json")
    # A complete file for each run, none of them over another, of what is no secret.
    secret = {"PEAL_STORE_SECRET": "s3cret", "SOME_TOKEN": "s3cret", "PEAL_ALGO": "all_reduce=ring"}
    for wanted in ("out.json", "out.json.0", "out.json.1"):
        run.table("all_reduce", 2, f"-b 1K -e 4K -f 4 -n 5 -J {path}", secret)
        with open(os.path.join(folder, wanted)) as file:
            text = file.read()
        data = json.loads(text)
        assert "s3cret" not in text and "PEAL_ALGO=all_reduce=ring" in data["env"], data["env"]
        assert [r["algorithm"] for r in data["results"]] == ["ring", "ring"] and "end_time" in data
        for r in data["results"]:
            assert r["wire_bytes"] == r["size"] and r["model_us"] > 0 and r["memory_bandwidth"] > 0, r
            for half in (r["out_of_place"], r["in_place"]):
                assert 0 < half["p50_us"] <= half["p99_us"] and half["efficiency_percent"] > 0, half
    assert sorted(os.listdir(folder)) == ["out.json", "out.json.0", "out.json.1"]
    for name in ("alltoall", "broadcast"):
        run.table(name, 1, f"-b 64 -e 64 -n 5 -c 0 -J {folder}/{name}.json")
        with open(f"{folder}/{name}.json") as file:
            result = json.load(file)["results"][0]
        assert result["in_place"]["nwrong"] is None and result["model_us"] is None, result
    # Each half says what ran it: root's buffer for the result lies elsewhere than what the others send.
    run.table("reduce", 2, f"-b 64K -e 64K -n 2 -R 2 -J {folder}/reduce.json")
    with open(f"{folder}/reduce.json") as file:
        result = json.load(file)["results"][0]
    halves = [result[half]["algorithm"] for half in ("out_of_place", "in_place")]
    assert halves == ["staged_slices", "direct_slices"], halves
    status, out, err = run("all_reduce", 1, f"-b 8 -e 8 -n 2 -J {folder}/no/such/folder/x.json", launched=False)
    assert status == 1 and "cannot write" in err, (status, out, err)

    # A picture, and a fit: lines of comment behind the table.
    picture = os.path.join(folder, "out.svg")
    out = run.table("all_reduce", 2, f"-b 64 -e 64K -f 1024 -n 2 --fit --plot {picture} --algo all")
    drawn = xml.etree.ElementTree.parse(picture).getroot()
    texts = [element.text for element in drawn.iter() if element.tag.endswith("text")]
    for text in ("in place", "out of place", "model, in place", "memory's limit", "ring", "64 KiB"):
        assert text in texts, (text, texts)
    assert any(text.endswith(" us") for text in texts) and any(text.endswith("/s") for text in texts), texts
    assert any(text.startswith("Bus bandwidth of all_reduce, 2 ranks of float") for text in texts), texts
    fit = out[out.index("# Fit, in place: alpha "):].splitlines()
    assert len(fit) == 2 + len(rows(out)) and all(line.startswith("# ") for line in fit), out
    status, out, err = run("all_reduce", 1, f"-b 8 -e 8 -n 2 --plot {folder}/no/such/x.svg", launched=False)
    assert status == 1 and "cannot write" in err, (status, out, err)

# As OSU's.
out = run.table("all_reduce", 2, "--osu -m 4:16 -f -c -z -i 50 -x 5")
assert re.search(r"^\n# OSU MPI Allreduce Latency Test v7\.4\n", out) and "\n# Datatype: MPI_INT.\n" in out, out
header = [line for line in out.splitlines() if line.startswith("# Size")][0]
assert header == "%-10s%20s%20s%20s%12s%20s%20s%20s%20s" % (
    "# Size", "Avg Latency(us)", "Min Latency(us)", "Max Latency(us)", "Iterations", "Validation", "P50 Tail Lat(us)",
    "P90 Tail Lat(us)", "P99 Tail Lat(us)"), header
for words in rows(out):
    low, high = float(words[2]), float(words[3])
    assert low <= float(words[1]) <= high and words[4:6] == ["50", "Pass"] and len(words) == 9, words
# Arithmetic takes about as long as a call, whatever that hides.
for words in rows(run.table("all_reduce", 2, "--osu --test overlap -m 64K:64K -f -i 50 -x 5")):
    assert float(words[2]) > 0.1 * float(words[6]) and 0 <= float(words[9]) <= 100, words
# Shares are of a rank, but where they are reduced.
for name, ranks in [(name, 3) for name in PROGRAMS[:8]] + [("sendrecv", 2)]:
    words = "--osu -m 1K:4K -i 10 -x 2 -c" + (" --test bibw --window 4" if name == "sendrecv" else "")
    assert [row[0] for row in rows(run.table(name, ranks, words))] == ["1024", "2048", "4096"], name
for words in ("--osu --test bw", "--osu -m x", "--osu --mystery"):
    status, out, err = run("all_reduce", 1, words, launched=False)
    assert status == 6 and words.split()[-1] in err, (status, out, err)
status, out, err = run("sendrecv", 3, "--osu")
assert status == 6 and "two ranks" in err, (status, out, err)
env = {"PEAL_ALGO": "all_reduce=ring", "WRONG_SEND": "11"}
status, out, err = run("all_reduce", 2, "--osu -m 4K:4K -i 20 -x 2 -c", env, program=wrong_program)
assert status == 1 and rows(out)[0][2] == "Fail" and "DATA VALIDATION ERROR" in out, (status, out, err)
print("algorithms, columns, files, fits, pictures, OSU's habits: as documented")
