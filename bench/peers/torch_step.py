# SPDX-License-Identifier: Apache-2.0
# The models of bench/step_time.cpp in PyTorch. Reads a line, times one group of steps, prints ms a step, of wall
# and of processor time; until its input ends. So a caller can alternate it with peal. With --memory it measures that instead.
import argparse
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class BasicNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = torch.flatten(self.dropout1(x), 1)
        x = self.dropout2(F.relu(self.fc1(x)))
        return F.log_softmax(self.fc2(x), 1)


def mlp():
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


class GptBlock(nn.Module):
    def __init__(self, width, heads, gelu):
        super().__init__()
        self.heads, self.gelu = heads, gelu
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.attn_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.mlp_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attn_proj(self.attention(self.c_attn(self.ln_1(x))))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate=self.gelu))

    def attention(self, qkv):
        batch, length, width = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
        q, k, v = qkv.view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        if qkv.is_cuda:  # PyTorch's fused attention, which the CPU build measured against does not have
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-1, -2)) * (width // self.heads) ** -0.5
            future = torch.ones(length, length, dtype=torch.bool).triu(1)
            y = scores.masked_fill(future, float("-inf")).softmax(-1) @ v
        return y.transpose(1, 2).reshape(batch, length, width)


class GPT(nn.Module):
    def __init__(self, words=1000, width=256, heads=4, layers=4, positions=128, gelu="none"):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(words, width), nn.Embedding(positions, width)
        self.h = nn.Sequential(*[GptBlock(width, heads, gelu) for _ in range(layers)])
        self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        return self.lm_head(self.ln_f(self.h(x)))


class BasicBlock(nn.Module):
    def __init__(self, into, out, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(into, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        same = stride == 1 and into == out
        self.downsample = nn.Sequential() if same else nn.Sequential(
            nn.Conv2d(into, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + self.downsample(x))


class ResNet18(nn.Module):
    """torchvision's, with the first convolution of small images and without the pool behind it."""

    def __init__(self, classes=10):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64)
        blocks, into = [], 64
        for out, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            blocks += [BasicBlock(into, out, stride), BasicBlock(out, out, 1)]
            into = out
        self.layers, self.fc = nn.Sequential(*blocks), nn.Linear(512, classes)

    def forward(self, x):
        return self.fc(self.layers(F.relu(self.bn1(self.conv1(x)))).mean((2, 3)))


parser = argparse.ArgumentParser()
parser.add_argument("--model", choices=["basicnet", "mlp", "gpt", "resnet18", "gpt2"], default="basicnet")
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
if options.model == "gpt":
    model, x, target, loss_of = language_model(GPT(), 1000, 128)
elif options.model == "gpt2":
    model, x, target, loss_of = language_model(GPT(50257, 768, 12, 12, 1024, "tanh"), 50257, 1024)
else:
    target = torch.arange(n) * 7 % 10
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
