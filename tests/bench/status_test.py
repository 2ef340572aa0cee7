# SPDX-License-Identifier: Apache-2.0
"""How the programs of bench/perf end: usage errors name the word, wrong values are counted.
   status_test.py PEAL_RUN FOLDER PROGRAM_WITH_WRONG_SENDS"""
import sys

from perf_run import Runner, rows

run, wrong_program = Runner(sys.argv[1], sys.argv[2]), sys.argv[3]


def mistake(words, named, env=None, expected=6):
    status, out, err = run("all_reduce", 1, words, env, launched=False)
    assert status == expected and named in err and out == "", f"{words}: status {status}, {out}{err}"


mistake("--no-such-option", "--no-such-option")
mistake("-Q", "-Q")
mistake("-b 8 word", "word")
mistake("-d float33", "float33")
mistake("-o mean", "mean")
mistake("-b many", "many")
mistake("-b 12Q", "12Q")
mistake("-b 1M -e 1K", "1048576 > 1024")
mistake("-n few", "few")
mistake("-n 0", "--iters: expected more than 0, got 0")
mistake("-w -1", "--warmup_iters: expected 0 or more, got -1")
mistake("-z 4", "4")
mistake("-a 9", "9")
mistake("-r 5", "no rank 5 of 1")
mistake("-J out.csv", "out.csv")
mistake("-I 1 -n 5 -K 5", "-K")
mistake("-i 0", "-i")
mistake("--dirty --clean", "--clean")
# A launcher that started several, of which each is alone.
mistake("", "start with the mpirun of the MPI that it was built with, `mpirun -n 3 ", {"SLURM_NTASKS": "3"})
mistake("", "start with `mpirun -n 3 ", {"WORLD_SIZE": "3"}, expected=1)

status, out, err = run("all_reduce", 1, "--help", launched=False)
assert status == 0 and "What is timed" in out and "--stepfactor" in out, out

# Sizes: K, M and G are powers of 1024.
for words, size in [("-b 1K -e 1K", 1024), ("-b 1.5K -e 1.5k", 1536), ("-b 2KiB -e 2KB", 2048), ("-b 1M -e 1m", 1 << 20)]:
    assert rows(run.table("all_reduce", 1, words + " -n 1"))[0][0] == str(size), words

# What has no meaning here is accepted, and said once, in words that no parser looks for.
out = run.table("all_reduce", 2, "-b 8 -e 8 -n 1 -t 2 -g 3 -p 1 -y 1 -G 2 -x 1 -D 1 -V 8")
said = [line for line in out.splitlines() if line.startswith("# Without meaning here: ")]
assert len(said) == 8, out
for word in ["bandwidth", "FAILED", "out-of-place", "Out of bounds values"]:
    assert not any(word in line for line in said), said

# Wrong values. A call of 4 KiB over a ring of two sends two messages; before the timed calls of the left half there is
# one of warm-up for the size and one for the test, so message 11 is sent in the middle of them. The right half, and the
# checks behind the timing, see nothing.
ring = {"PEAL_ALGO": "all_reduce=ring"}
status, out, err = run("all_reduce", 2, "-b 4K -e 4K -n 20", ring, program=wrong_program)
assert status == 0, out + err
status, out, err = run("all_reduce", 2, "-b 4K -e 4K -n 20", {**ring, "WRONG_SEND": "11"}, program=wrong_program)
assert status == 7, f"{status}\n{out}{err}"
words = rows(out)[0]
assert words[8] in ("1", "2") and words[12] == "0", words
assert f"# Out of bounds values : {words[8]} FAILED" in out, out  # as many ranks as have a wrong element
# In none of the checks behind the timing alone would that have been seen: -c 0 sees nothing.
status, out, err = run("all_reduce", 2, "-b 4K -e 4K -n 20 -c 0", {**ring, "WRONG_SEND": "11"}, program=wrong_program)
assert status == 0 and rows(out)[0][8] == "N/A", out + err

# A mean that is asked for.
for least, status_wanted, word in [("1e9", 7, "FAILED"), ("1e-9", 0, "OK")]:
    status, out, err = run("all_reduce", 2, "-b 64K -e 64K -n 2", {"NCCL_TESTS_MIN_BW": least})
    assert status == status_wanted, (status, out, err)
    assert [line for line in out.splitlines() if "bandwidth" in line][0].split()[-1] == word, out
print("statuses: as documented")
