# SPDX-License-Identifier: Apache-2.0
# A training step of the models of torch_jobs.py, by the fastest of PyTorch's AdamWs. Says how many parameters there are
# and which that was; then, for each line that it reads, times one group of steps and prints ms a step, of wall and of
# processor time. So ratios.py can alternate it with peal. --list says which settings (--with) each model has a use for.
import argparse
import json
import os
import shutil
import sys
import time

import torch

sys.dont_write_bytecode = True  # here; what torch imports later is better kept
import torch_nets  # noqa: E402
from torch_jobs import JOBS  # noqa: E402
sys.dont_write_bytecode = False

ADAMWS = {"plain": {}, "foreach": {"foreach": True}, "fused": {"fused": True}}

parser = argparse.ArgumentParser()
parser.add_argument("--list", action="store_true", help="print as JSON what this PyTorch can be asked for")
parser.add_argument("--model", choices=list(JOBS), default="basicnet")
parser.add_argument("--batch", type=int, default=1)
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--steps", type=int, default=10)
parser.add_argument("--device", default="cpu")
parser.add_argument("--precision", choices=["f32", "tf32", "bf16"], default="f32")
parser.add_argument("--with", nargs="*", choices=["sdpa", "channels_last", "compile"], default=[], dest="settings")
parser.add_argument("--optimizer", choices=list(ADAMWS), help="default: the fastest, by trial")
parser.add_argument("--memory", action="store_true",
                    help="print the most bytes resident, before the model and after steps (cuda: of tensors)")
options = parser.parse_args()

if options.list:
    there = {"channels_last"}
    if hasattr(torch.nn.functional, "scaled_dot_product_attention"):
        there.add("sdpa")
    if hasattr(torch, "compile") and shutil.which(os.environ.get("CXX", "g++")):
        there.add("compile")
    print(json.dumps({"version": torch.__version__, "mkl": torch.backends.mkl.is_available(),
                      "tries": {name: [word for word in [*job.tries, "compile"] if word in there]
                                for name, job in JOBS.items()}}))
    sys.exit()


def resident():
    """The most bytes of this process that were in memory at once."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))


at_start = resident()

torch.set_num_threads(options.threads)
torch.manual_seed(0)
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = options.precision == "tf32"
cuda = options.device != "cpu"
torch.backends.cudnn.benchmark = cuda
torch_nets.by_hand = "sdpa" not in options.settings

model, inputs, target, loss_of = JOBS[options.model].make(options.batch)
parameters = sum(parameter.numel() for parameter in model.parameters())
model, target = model.to(options.device), target.to(options.device)
inputs = [x.to(options.device) for x in inputs]
if "channels_last" in options.settings:
    model = model.to(memory_format=torch.channels_last)
    inputs = [x.to(memory_format=torch.channels_last) if x.dim() == 4 else x for x in inputs]


def loss_now():
    return loss_of(model(*inputs), target)


loss = torch.compile(loss_now) if "compile" in options.settings else loss_now


def synchronize():
    if cuda:
        torch.cuda.synchronize()


def backward():
    model.zero_grad(set_to_none=True)
    with torch.autocast("cuda" if cuda else "cpu", torch.bfloat16, enabled=options.precision == "bf16"):
        lost = loss()
    lost.backward()


def group():
    synchronize()
    wall, processor = time.perf_counter(), time.process_time()
    for _ in range(options.steps):
        backward()
        optimizer.step()
    synchronize()
    return [(end - start) / options.steps * 1e3
            for start, end in ((wall, time.perf_counter()), (processor, time.process_time()))]


def seconds_of(candidate):
    """The least that a step of the optimizer alone takes, after one that makes its state."""
    times = []
    for _ in range(6):
        synchronize()
        start = time.perf_counter()
        candidate.step()
        synchronize()
        times.append(time.perf_counter() - start)
    return min(times[1:])


backward()  # a graph for compile, gradients for the trial
times = {}
for name in [options.optimizer] if options.optimizer else ADAMWS:
    try:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **ADAMWS[name])
        times[name] = 0 if options.optimizer else seconds_of(optimizer)
    except (TypeError, RuntimeError, ValueError):  # an older PyTorch has not all of them, on all devices
        continue
name = min(times, key=times.get)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **ADAMWS[name])

if options.memory:
    group()
    if cuda:  # without what the first steps try
        torch.cuda.reset_peak_memory_stats()
        group()
    print(*(0, torch.cuda.max_memory_allocated()) if cuda else (at_start, resident()))
    sys.exit()
for _ in range(3):
    backward()
    optimizer.step()
print(parameters, name, flush=True)
for _ in sys.stdin:
    print(*group(), flush=True)
