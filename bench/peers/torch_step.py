# SPDX-License-Identifier: Apache-2.0
# The models of bench/step_time.cpp in PyTorch. Reads a line, times one group of steps, prints ms a step, of wall
# and of processor time; until its input ends. So a caller can alternate it with peal. With --memory it measures that instead.
import argparse
import sys
import time

import torch
import torch.nn.functional as F

sys.dont_write_bytecode = True  # here; what torch imports later is better kept
from torch_nets import ADULT_SIZES, GPT, AwdLstm, BasicNet, ResNet18, TabularModel, mlp  # noqa: E402
sys.dont_write_bytecode = False

parser = argparse.ArgumentParser()
parser.add_argument("--model", choices=["basicnet", "mlp", "gpt", "resnet18", "tabular", "awd_lstm", "gpt2"], default="basicnet")
parser.add_argument("--batch", type=int, required=True)
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--steps", type=int, default=10)
parser.add_argument("--device", default="cpu")
parser.add_argument("--precision", choices=["f32", "tf32", "bf16"], default="f32")
parser.add_argument("--memory", action="store_true",
                    help="print the most bytes resident, before the model and after steps (cuda: of tensors)")
options = parser.parse_args()


def resident():
    """The most bytes of this process that were in memory at once."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))


at_start = resident()

torch.set_num_threads(options.threads)
torch.manual_seed(0)
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = options.precision == "tf32"
n, cuda = options.batch, options.device != "cpu"
torch.backends.cudnn.benchmark = cuda


def language_model(model, words, length):
    tokens = torch.arange(n * length) * 7 % words
    return model, tokens.view(n, length), tokens, lambda out, y: F.cross_entropy(out.view(-1, words), y)


if options.model == "basicnet":
    model, x, loss_of = BasicNet(), torch.randn(n, 1, 28, 28), F.nll_loss
elif options.model == "mlp":
    model, x, loss_of = mlp(), torch.randn(n, 784), F.cross_entropy
elif options.model == "resnet18":
    model, x, loss_of = ResNet18(), torch.randn(n, 3, 32, 32), F.cross_entropy
elif options.model == "tabular":
    codes = torch.stack([torch.arange(n) * 7 % words for words, _ in ADULT_SIZES], 1)
    net, x, loss_of = TabularModel(ADULT_SIZES, 6), torch.randn(n, 6), F.cross_entropy
    codes, net = codes.to(options.device), net.to(options.device)
    model = lambda numbers: net(codes, numbers)  # noqa: E731
    model.to, model.parameters = lambda device: model, net.parameters
if options.model == "gpt":
    model, x, target, loss_of = language_model(GPT(), 1000, 128)
elif options.model == "awd_lstm":
    model, x, target, loss_of = language_model(AwdLstm(10000), 10000, 70)
elif options.model == "gpt2":
    model, x, target, loss_of = language_model(GPT(50257, 768, 12, 12, 1024, "tanh"), 50257, 1024)
else:
    target = torch.arange(n) * 7 % (2 if options.model == "tabular" else 10)
model, x, target = model.to(options.device), x.to(options.device), target.to(options.device)
# The fastest of PyTorch's own choices: one fused loop over tensors where this version has it.
try:
    fast = {"fused": True} if cuda else {"foreach": True}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **fast)
except TypeError:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
plain = torch.optim.AdamW(model.parameters(), lr=1e-3)


def synchronize():
    if cuda:
        torch.cuda.synchronize()


def group(chosen):
    synchronize()
    wall, processor = time.perf_counter(), time.process_time()
    for _ in range(options.steps):
        chosen.zero_grad(set_to_none=True)
        with torch.autocast("cuda" if cuda else "cpu", torch.bfloat16, enabled=options.precision == "bf16"):
            loss = loss_of(model(x), target)
        loss.backward()
        chosen.step()
    synchronize()
    return [(end - start) / options.steps * 1e3
            for start, end in ((wall, time.perf_counter()), (processor, time.process_time()))]


if options.memory:
    group(optimizer if cuda else plain)
    if cuda:  # without what the first step tries
        torch.cuda.reset_peak_memory_stats()
        group(optimizer)
    print(*(0, torch.cuda.max_memory_allocated()) if cuda else (at_start, resident()))
    sys.exit()
for candidate in (optimizer, plain):
    group(candidate)
best = min((optimizer, plain), key=lambda chosen: min(group(chosen)[1] for _ in range(3)))
for _ in sys.stdin:
    print(*group(best), flush=True)
