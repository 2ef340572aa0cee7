# SPDX-License-Identifier: Apache-2.0
"""Tools that read nccl-tests' and OSU's output, by the rules that each of them has, read that of bench/perf.
   parsers_test.py PEAL_RUN FOLDER"""
import json
import os
import re
import sys
import tempfile

from perf_run import Runner, rows

run = Runner(sys.argv[1], sys.argv[2])
SIZES = [1 << k for k in range(10, 17)]
out = run.table("all_reduce", 2, "-b 1K -e 64K -f 2 -n 5")
lines = out.splitlines()
wanted = rows(out)
assert [int(w[0]) for w in wanted] == SIZES
numbers = [[float(x) for x in (w[5], w[6], w[7], w[9], w[10], w[11])] for w in wanted]


def ramble():
    """Thirteen groups, each behind blanks."""
    number = r"[0-9]+\.?[0-9]+"
    pattern = re.compile(r"\s+".join([r"", rf"(?P<size>{number})", rf"(?P<count>{number})", r"(?P<type>\w+)", r"(?P<redop>\w+)",
                                      r"(?P<root>-?[0-9]+)"] + [rf"({number})", rf"({number})", rf"({number})", r"(\S+)"] * 2))
    found = [m for m in map(pattern.match, lines) if m]
    assert [int(m["size"]) for m in found] == SIZES, found
    assert [[float(x) for i, x in enumerate(m.groups()[5:]) if i % 4 != 3] for m in found] == numbers
    assert re.search(rf"Avg bus bandwidth\s+:\s+({number})", out) and re.search(r"Out of bounds values\s*:\s+0 OK", out)


def cloudai():
    """Lines that begin with a digit, of exactly thirteen words; both footers; no failure."""
    found = [line.split() for line in lines if re.match(r"^\d", line.strip())]
    assert len(found) == len(SIZES) and all(len(words) == 13 for words in found)
    assert "# Out of bounds values" in out and "# Avg bus bandwidth" in out and "Test failure" not in out
    devices = [re.search(r"on\s+([\w\d\-.]+)\s+device\s+(\d+)", line) for line in lines if "Rank" in line and "device" in line]
    assert len(devices) == 2 and all(devices)


def superbench():
    """From the last line with out-of-place to the last with Out of bounds values; columns by the header's words, from the
    end."""
    first = max(i for i, line in enumerate(lines) if "out-of-place" in line)
    last = max(i for i, line in enumerate(lines) if "Out of bounds values" in line)
    header = lines[first + 1].split()[1:]
    time, bus = header.index("time") - len(header), header.index("busbw") - len(header)
    body = [line.split() for line in lines[first + 3:last]]
    assert [float(words[time]) for words in body] == [n[0] for n in numbers]
    assert [float(words[bus]) for words in body] == [n[2] for n in numbers]
    assert [words[header.index("size")] for words in body] == [str(size) for size in SIZES]


def aws_csv():
    pattern = re.compile(r"\s+(\d+)\s+(\d+)\s+(float|double|int|half)\s+(sum|prod|max|min|none)\s+(-?\d+)"
                         + r"\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)\s+(\d+|N/A)" * 2)
    assert [int(m[1]) for m in map(pattern.match, lines) if m] == SIZES


def aws_health():
    """grep -E "^\\s+[0-9]" | awk '{print $(NF-1)}'"""
    assert max(float(line.split()[-2]) for line in lines if re.match(r"^\s+[0-9]", line)) == max(n[5] for n in numbers)


def azure():
    """No line has FAILED; the first one with `bandwidth` has the mean as its sixth word, whatever else is said."""
    noisy = run.table("all_reduce", 2, "-b 1K -e 2K -f 2 -n 2 -t 2 -g 2 -G 1 --dirty --columns --fit --algo all")
    for text in (out, noisy):
        assert "FAILED" not in text
        words = [line for line in text.splitlines() if "bandwidth" in line][0].split()
        assert words[:5] == ["#", "Avg", "bus", "bandwidth", ":"] and float(words[5]) > 0, words
        assert sum("out-of-place" in line for line in text.splitlines()) == 1
        assert sum("Out of bounds values" in line for line in text.splitlines()) == 1


def flagperf():
    """grep "# Avg bus bandwidth" | awk '{print $NF}'"""
    assert float([line for line in lines if "# Avg bus bandwidth" in line][0].split()[-1]) > 0


def bobber():
    found = [line.split() for line in lines if re.match(r".*float     sum.*", line)]
    assert [(int(words[0]), float(words[6])) for words in found] == [(s, n[1]) for s, n in zip(SIZES, numbers)]


def json_users():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "out.json")
        text = run.table("all_reduce", 2, f"-b 1K -e 4K -f 2 -n 20 -I 1 -K 1 -J {path}")
        assert f"# Writing JSON output to {path}\n" in text
        with open(path) as file:
            data = json.load(file)
    assert data["version"] == 3 and isinstance(data["nccl_version"], int)
    assert [r["size"] for r in data["results"]] == [1024, 2048, 4096]
    for r, words in zip(data["results"], rows(text)):
        # Of the row these are words 5 to 8 and, behind four of iterations, 13 to 16.
        for key, at in (("out_of_place", 5), ("in_place", 13)):
            assert abs(r[key]["time"] - float(words[at])) <= 0.006 * (1 + r[key]["time"]), (r, words)
            assert abs(r[key]["bus_bw"] - float(words[at + 2])) <= 0.006 * (1 + r[key]["bus_bw"]) and r[key]["nwrong"] == 0
        # analyze_perf_json.py: what it prints, and that it agrees.
        for key in ("out_of_place_per_iter", "in_place_per_iter"):
            each = r[key]
            ranks = each["per_process_max_times_us"]
            assert len(ranks) == 2 and all(len(row) == 20 for row in ranks) and len(each["times_us"]) == 20
            assert all(abs(t - max(row[i] for row in ranks)) < 0.001 for i, t in enumerate(each["times_us"]))
            assert each["skipped_iterations"] == 1
            assert each["min_us"] <= each["p50_us"] <= each["p95_us"] <= each["p99_us"] <= each["max_us"]
            assert each["min_us"] <= each["avg_us"] <= each["max_us"] and each["cv_pct"] >= 0
    assert data["out_of_bounds"] == {"count": 0, "okay": "true"}
    assert data["average_bus_bandwidth"]["bandwidth"] > 0 and data["average_bus_bandwidth"]["okay"] == "unchecked"
    config = data["config"]
    assert config["minimum_bytes"] == 1024 and config["step_factor"] == 2 and config["iterations"] == 20
    assert [d["rank"] for d in config["devices"]] == [0, 1] and all("hostname" in d for d in config["devices"])
    assert data["errors"] == [] and data["end_time"] >= data["start_time"]


def ramble_osu():
    for words, header in (("", r"#\s+Size\s+Avg Latency\(us\)\s*$"),
                          ("--test overlap",
                           r"#\s+Size\s+Overall\(us\)\s+Compute\(us\)\s+Pure Comm\.\(us\)\s+Overlap\(%\)\s*$")):
        text = run.table("all_reduce", 2, "--osu -m 4:4K -i 20 -x 2 " + words).splitlines()
        assert any(re.match(r"# OSU.*Test (v[0-9\.]+)", line) for line in text), text
        at = [i for i, line in enumerate(text) if re.match(header, line)]
        assert len(at) == 1, text
        found = [re.match(r"(\d+)\s+([0-9.]+)" + (r"\s*$" if not words else ""), line) for line in text[at[0] + 1:]]
        assert [int(m[1]) for m in found] == [1 << k for k in range(2, 13)], text


def reframe():
    text = run.table("all_reduce", 2, "--osu -m 8 -x 10 -i 1000 -c")
    assert re.search(r"^8.*Pass", text, re.MULTILINE)
    assert float(re.search(r"^8\s+(\S+)", text, re.MULTILINE)[1]) > 0
    text = run.table("alltoall", 2, "--osu -m 8:8 -x 10 -i 100 -c")
    assert re.search(r"^8.*Pass", text, re.MULTILINE), text


def metrics_operator():
    """A header of comments; then lines of numbers alone."""
    for name, words, columns in (("all_reduce", "", 2), ("all_gather", "-f", 5), ("sendrecv", "--test bw --window 8", 2),
                                 ("sendrecv", "--test bibw --window 8", 2), ("sendrecv", "", 2),
                                 ("broadcast", "--test overlap", 5)):
        text = run.table(name, 2, "--osu -m 1K:4K -i 20 -x 2 " + words)
        found = rows(text)
        assert [len(row) for row in found] == [columns] * 3, text
        assert all(float(word) >= 0 for row in found for word in row)


for rule in (ramble, cloudai, superbench, aws_csv, aws_health, azure, flagperf, bobber, json_users, ramble_osu, reframe,
             metrics_operator):
    rule()
    print("reads:", rule.__name__)
