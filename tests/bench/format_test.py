# SPDX-License-Identifier: Apache-2.0
"""The output of bench/perf is nccl-tests 2.19's, line by line.
   format_test.py PEAL_RUN FOLDER RANKS"""
import re
import sys

from perf_run import Runner, rows

run, ranks = Runner(sys.argv[1], sys.argv[2]), int(sys.argv[3])

# nccl-tests' own formats, written out.
TIME, RATE = r"( {0,6}[0-9]+\.[0-9]{2}| {0,6}[0-9]+\.[0-9]| {0,6}[0-9]+|[0-9]\.[0-9]e\+[0-9]{2})", r" *[0-9.e+inf]+"


def half(checked):
    wrong = r"  (     [0-9])" if checked else r"    N/A"
    return rf"  (?=.{{7}}  ){TIME}  (?=.{{6}}  ){RATE}  (?=.{{6}}  ){RATE}" + wrong


def row(name, checked=True):
    in_place = checked and name not in ("alltoall", "sendrecv")
    return r"(?=.{12}  ) *[0-9]+  (?=.{12}  ) *[0-9]+  (?=.{8}  ) *[a-z0-9]+  (?=.{6}  ) *[a-z]+  (?=.{6}) *-?[0-9]+" \
        + half(checked) + half(in_place)


def expected(name, first, last, step, kind, iters, check, rows_of_table):
    program = name + "_perf"
    head = [
        r"# nccl-tests version 2\.19\.6 nccl-headers=0 nccl-library=0 \(its format; by peal\)",
        rf"# Collective test starting: {program}",
        rf"# nThread 1 nGpus 1 minBytes {first} maxBytes {last} step: {step}\({kind}\) warmup iters: 1 iters: {iters} "
        rf"agg iters: 1 validation: {check} graph: 0 unalign: 0",
        r"#",
        r"# Using devices",
    ]
    head += [rf"#  Rank {r:2d} Group  0 Pid [ 0-9]{{6,}} on  *\S+ device  *[0-9]+ \[0000:00:00\] CPU" for r in range(ranks)]
    head += [
        r"#",
        re.escape("# %10s  %12s  %8s  %6s  %6s           out-of-place                       in-place          "
                  % ("", "", "", "", "")),
        re.escape("# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s "
                  % ("size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw",
                     "busbw", "#wrong")),
        re.escape("# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s "
                  % ("(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "")),
    ]
    foot = [
        r"# Out of bounds values : 0 OK",
        r"# Avg bus bandwidth    : [0-9.e+-]+ ",
        r"#",
        rf"# Collective test concluded: {program}",
        r"#",
        r"",
    ]
    return head + [row(name, check > 0)] * rows_of_table + foot


def check_lines(name, words, *shape):
    out = run.table(name, ranks, words)
    wanted, got = expected(name, *shape), out.split("\n")[:-1]
    assert len(wanted) == len(got), f"{name} {words}: expected {len(wanted)} lines, got {len(got)}:\n{out}"
    for pattern, line in zip(wanted, got):
        assert re.fullmatch(pattern, line), f"{name} {words}: expected\n  {pattern}\ngot\n  {line}"
    for words in rows(out):
        assert len(words) == 13, words
    return out


# Line by line; and sizes, counts, names and roots, of a share where ranks have shares. Long names are theirs too.
share = 4096 // 4 // ranks & ~3
for name, count, op, root in [("all_reduce", 1024, "sum", -1), ("all_gather", share, "none", -1),
                              ("reduce_scatter", share, "sum", -1), ("broadcast", 1024, "none", 0),
                              ("reduce", 1024, "sum", 0), ("alltoall", share, "none", -1), ("gather", share, "none", 0),
                              ("scatter", share, "none", 0), ("sendrecv", 1024, "sum", -1)]:
    out = check_lines(name, "--minbytes=64 -e4K --stepfactor 8 -n 3", 64, 4096, 8, "factor", 3, 1, 3)
    shared = name in ("all_gather", "reduce_scatter", "alltoall", "gather", "scatter")
    size = count * 4 * (ranks if shared else 1)
    # The sizes are 64, 512 and 4096.
    assert rows(out)[2][:5] == [str(size), str(count), "float", op, str(root)], out
check_lines("all_reduce", "-b 1024 -e 2048 -i 512 -n 2 -c 0", 1024, 2048, 512, "bytes", 2, 0, 3)
types = [words[2] for words in rows(run.table("all_reduce", ranks, "-b 1K -e 1K -n 1 -d all"))]
assert types == ["int8", "uint8", "int32", "int64", "half", "float", "double", "bfloat16"], types
ops = [words[3] for words in rows(run.table("reduce_scatter", ranks, "-b 1K -e 1K -n 1 -o all"))]
assert ops == ["sum", "prod", "max", "min", "avg"], ops
roots = [words[4] for words in rows(run.table("broadcast", ranks, "-b 1K -e 1K -n 1 -r -1"))]
assert roots == [str(r) for r in range(ranks)], roots

# What has a say in the timing, with values right in each: all places used up, several calls, modes of waiting.
for turn, words in enumerate(["--dirty -R 2 -a 0 -C 1", "--clean -a 3 -c 3 -w 0", "-m 3 -u 1 -z 2", "-m 50 -n 2 -z 3", "-m 4",
                              "-z 1 -a 2 -N 2 -T 50"]):
    for name in ["all_reduce", ["reduce", "gather", "alltoall"][turn % 3]]:
        got = rows(run.table(name, ranks, "-b 1000 -e 3000 -i 1000 -n 5 " + words))
        assert len(got) == (6 if "-N 2" in words else 3), (name, words, got)
        assert all(w[8] == "0" and w[12] in ("0", "N/A") for w in got), (name, words, got)

# Further columns, as theirs: iterations, and when.
out = run.table("all_reduce", ranks, "-b 1K -e 1K -n 9 -I 1 -K 2 -S 1 -M 1")
assert len(rows(out)[0]) == 23 and "; summary skips first 2 iterations" in out and "i_p99" in out, out
assert re.search(r" \d{4}-\d\d-\d\d \d\d:\d\d:\d\d$", out, re.MULTILINE), out
assert re.search(r"^# Memory usage         : Initialization \S+ .?B \| User-Allocated \S+ .?B \| Collective \S+ .?B \| Total  \S+ .?B$",
                 out, re.MULTILINE), out
print("format: as nccl-tests', at", ranks, "ranks")
