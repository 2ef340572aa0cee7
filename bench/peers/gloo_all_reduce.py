# SPDX-License-Identifier: Apache-2.0
# PyTorch's dist.all_reduce over Gloo, as native_collectives.cpp measures an MPI, but that the barrier is Gloo's own: a call
# takes far longer than its ranks differ by. Starts its ranks itself.  gloo_all_reduce.py RANKS
import os
import signal
import statistics
import subprocess
import sys
import time

import torch
import torch.distributed as dist


def slowest(seconds):
    times = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(times, op=dist.ReduceOp.MAX)
    return statistics.median(times.tolist())


def turn(size, calls, rank, world):
    count = size // 4
    place = torch.arange(count) % 8
    wrong, single, loop = 0, [], []

    def fill(i):
        return (place + rank + i % 4).float()

    def is_wrong(data, i, factor):
        return int((data != (world * (place + i % 4) + world * (world - 1) // 2).float() * factor).sum())

    for i in range(calls):
        data = fill(i)
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(data)
        single.append(time.perf_counter() - start)
        wrong += is_wrong(data, i, 1)
    each = min(calls, 20)
    for i in range(max(1, calls // 20)):
        data = fill(i)
        dist.barrier()
        start = time.perf_counter()
        for _ in range(each):
            dist.all_reduce(data)
        loop.append((time.perf_counter() - start) / each)
        if world & (world - 1) == 0:
            wrong += is_wrong(data, i, float(world) ** (each - 1))
    all_wrong = torch.tensor([wrong])
    dist.all_reduce(all_wrong)
    return slowest(single) * 1e6, slowest(loop) * 1e6, int(all_wrong)


def main(rank, world):
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[3]}", rank=rank, world_size=world)
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    while True:
        words = sys.stdin.readline().split() if rank == 0 else []
        what = torch.tensor([int(word) for word in words] or [0, 0])
        dist.broadcast(what, 0)
        size, calls = what.tolist()
        if size == 0:
            break
        signal.alarm(60)
        single, loop, wrong = turn(size, calls, rank, world)
        signal.alarm(0)
        if rank == 0:
            print(size, f"{single:.3f} {loop:.3f}", wrong, flush=True)
    # Without it Gloo's thread may still be at work while the interpreter ends, which aborts the process.
    dist.barrier()
    dist.destroy_process_group()


if len(sys.argv) > 2:
    main(int(sys.argv[2]), int(sys.argv[1]))
else:
    meeting = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"gloo_all_reduce.{os.getpid()}")
    ranks = [subprocess.Popen([sys.executable, __file__, sys.argv[1], str(rank), meeting],
                              stdin=None if rank == 0 else subprocess.DEVNULL) for rank in range(int(sys.argv[1]))]
    statuses = [rank.wait() for rank in ranks]
    if os.path.exists(meeting):
        os.remove(meeting)
    sys.exit(max(map(abs, statuses)))
