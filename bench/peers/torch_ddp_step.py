# SPDX-License-Identifier: Apache-2.0
# bench/ddp_step.cpp --on-demand in PyTorch, over Gloo: reads lines "ARM STEPS", prints the milliseconds of a step of rank 0
# and the bytes of the last bucket. Arms: alone, each rank trains by itself; barrier, and they meet before each optimizer
# step; ddp; fsdp, fully_shard of each block and of the rest. One thread a rank, each on a core of its own. Starts its ranks
# itself.
#   torch_ddp_step.py RANKS MODEL BATCH      a model of torch_jobs.py
import copy
import os
import subprocess
import sys
import time

import torch
import torch.distributed as dist

try:
    from torch.distributed.fsdp import fully_shard
except ImportError:  # before PyTorch 2.6
    fully_shard = None

sys.dont_write_bytecode = True  # here; what torch imports later is better kept
from torch_jobs import JOBS  # noqa: E402
sys.dont_write_bytecode = False

ARMS = ["alone", "barrier", "ddp", "fsdp"]
BLOCKS = ("GptBlock", "BasicBlock")  # of torch_nets.py


def training(model, parallel, inputs, y, loss_of):
    """A step, by the faster of PyTorch's own AdamWs."""
    if parallel == "fsdp":
        for module in [each for each in model.modules() if type(each).__name__ in BLOCKS]:
            fully_shard(module)
        fully_shard(model)
    elif parallel:
        model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizers = [torch.optim.AdamW(model.parameters(), lr=1e-3, **how) for how in ({"foreach": True}, {"fused": True})]

    def step(optimizer, between):
        optimizer.zero_grad(set_to_none=True)
        loss_of(model(*inputs), y).backward()
        between()
        optimizer.step()

    def seconds(optimizer):
        start = time.perf_counter()
        for _ in range(5):
            step(optimizer, lambda: None)
        return time.perf_counter() - start

    spent = torch.tensor([min(seconds(each) for _ in range(3)) for each in optimizers])
    dist.all_reduce(spent)
    best = optimizers[int(spent.argmin())]
    return model, lambda between=lambda: None: step(best, between)


def last_bucket(model):
    """Bytes; buckets are sent in order."""
    told = model._get_ddp_logging_data()
    return int((told.get("rebuilt_bucket_sizes") or told["bucket_sizes"]).split(",")[-1])


def main(rank, world, name, batch):
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    torch.set_num_threads(1)
    torch.manual_seed(0)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[5]}", rank=rank, world_size=world)
    model, inputs, y, loss_of = JOBS[name].make(batch)
    _, alone = training(copy.deepcopy(model), False, inputs, y, loss_of)
    whole, sharded = copy.deepcopy(model), None
    parallel, together = training(model, "ddp", inputs, y, loss_of)
    while True:
        words = sys.stdin.readline().split() if rank == 0 else []
        what = torch.tensor([ARMS.index(words[0]), int(words[1])] if words else [0, 0])
        dist.broadcast(what, 0)
        arm, steps = ARMS[what[0]], int(what[1])
        if steps == 0:
            break
        if arm == "fsdp" and sharded is None:
            _, sharded = training(whole, "fsdp", inputs, y, loss_of)
        step = {"alone": alone, "barrier": lambda: alone(dist.barrier), "ddp": together,
                "fsdp": sharded}[arm]
        dist.barrier()
        start = time.perf_counter()
        for _ in range(steps):
            step()
        if rank == 0:
            took = (time.perf_counter() - start) / steps * 1e3
            print(f"{took:.4f} {last_bucket(parallel) if arm == 'ddp' else 0}", flush=True)


if len(sys.argv) > 4:
    main(int(sys.argv[4]), int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
else:
    meeting = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"torch_ddp_step.{os.getpid()}")
    ranks = [subprocess.Popen([sys.executable, __file__, *sys.argv[1:], str(rank), meeting],
                              stdin=None if rank == 0 else subprocess.DEVNULL) for rank in range(int(sys.argv[1]))]
    statuses = [rank.wait() for rank in ranks]
    if os.path.exists(meeting):
        os.remove(meeting)
    sys.exit(max(map(abs, statuses)))
