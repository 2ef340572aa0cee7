# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of torch_models.cpp: builds the same models, loads peal's state by its keys, and compares outputs,
loss, gradients, running statistics and clipped gradients."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch_exchange import load
from torch_gpt2 import GPT2

try:
    import torchvision
except ImportError:
    torchvision = None

BOUNDS = {torch.float64: 1e-10, torch.float32: 1e-5}


def resnet18(small_images):
    model = torchvision.models.resnet18(num_classes=10)
    if small_images:
        model.conv1, model.maxpool = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.Identity()
    return model


class Comparison:
    def __init__(self):
        self.count, self.wrong, self.worst = 0, 0, {}

    def __call__(self, what, got, expected, bound):
        if got.shape != expected.shape or got.dtype != expected.dtype:
            sys.exit(f"{what}: peal has {got.dtype} {tuple(got.shape)}, PyTorch {expected.dtype} {tuple(expected.shape)}")
        got, expected = got.double(), expected.detach().double()
        error = ((got - expected).norm() / expected.norm().clamp(min=1e-30)).item() if got.ne(expected).any() else 0.0
        self.count += 1
        self.worst[bound] = max(self.worst.get(bound, 0), error)
        if not error <= bound:
            print(f"{what}: relative difference {error:.2g}")
            self.wrong += 1

    def finish(self):
        print(f"{self.count} comparisons with PyTorch {torch.__version__}; largest relative difference by bound:",
              ", ".join(f"{worst:.2g} of {bound:.2g}" for bound, worst in self.worst.items()))
        if self.wrong:
            sys.exit(f"{self.wrong} differences")


def compare_model(same, name, model, path):
    tensors, _ = load(path)

    def part(prefix):
        return {key[len(prefix):]: value for key, value in tensors.items() if key.startswith(prefix)}

    dtype = tensors["y"].dtype
    bound = BOUNDS[dtype]
    model = model.to(dtype)
    state = part("before.")
    assert list(sorted(state)) == sorted(model.state_dict()), sorted(state)
    model.load_state_dict(state)
    y = model(tensors["x"])
    loss = F.cross_entropy(y.reshape(-1, y.shape[-1]), tensors["target"], label_smoothing=0.1)
    loss.backward()
    same(f"{name} output", tensors["y"], y, bound)
    same(f"{name} loss", tensors["loss"], loss, bound)
    gradients = dict(model.named_parameters())
    for key, value in part("grad.").items():
        # A sum of many nearly cancelling terms: the gradients of f32 agree as far as f32 goes.
        same(f"{name} grad {key}", value, gradients[key].grad, 20 * bound)
    for key, value in part("after.").items():
        same(f"{name} after {key}", value, model.state_dict()[key], bound)
    same(f"{name} evaluation", tensors["eval"], model.eval()(tensors["x"]), bound)
    for kind in ("inf", "1", "2"):  # in f64, since PyTorch's sum of millions of f32 is off by 4e-4
        norms = torch.stack([parameter.grad.double().norm(float(kind)) for parameter in model.parameters()])
        same(f"{name} norm {kind}", tensors[f"norm.{kind}"], norms.norm(float(kind)), bound)
    nn.utils.clip_grad_norm_(model.parameters(), 0.125)
    for key, value in part("clipped.").items():
        same(f"{name} clipped {key}", value, gradients[key].grad, 20 * bound)
    nn.utils.clip_grad_value_(model.parameters(), 1e-3)
    for key, value in part("cut.").items():
        same(f"{name} cut {key}", value, gradients[key].grad, 20 * bound)


def compare_attention(same, name, path, on):
    tensors, _ = load(path)
    attention = nn.MultiheadAttention(12, 3, bias=on, batch_first=True).double()
    names = list(attention.state_dict())
    assert names == [key[6:] for key in tensors if key.startswith("state.")], names
    attention.load_state_dict({key: tensors["state." + key] for key in names})
    x = [tensors[f"x.{i}"].requires_grad_() for i in range(3)]
    mask = torch.ones(5, 5, dtype=torch.bool).triu(1) if on else None
    y = attention(*x, attn_mask=mask)[0] + attention(x[0], x[0], x[0], attn_mask=mask)[0]
    y.backward(tensors["seed"])
    same(f"{name} output", tensors["y"], y, 1e-10)
    for i in range(3):
        same(f"{name} input gradient {i}", tensors[f"dx.{i}"], x[i].grad, 1e-10)
    for key, parameter in attention.named_parameters():
        same(f"{name} grad {key}", tensors["grad." + key], parameter.grad, 1e-10)


def main(folder):
    same = Comparison()
    for dtype in ("f64", "f32"):
        for word, on in ("false", False), ("true", True):
            if torchvision:
                compare_model(same, f"resnet18 {word} {dtype}", resnet18(on), f"{folder}/resnet18.{word}.{dtype}")
            gpt = GPT2(50, 24, 3, 2, 9, gelu="tanh" if on else "none", tied=on, linear=nn.Linear)
            compare_model(same, f"gpt {word} {dtype}", gpt, f"{folder}/gpt.{word}.{dtype}")
    for on in (False, True):
        word = "true" if on else "false"
        compare_attention(same, f"attention {word}", f"{folder}/attention.{word}", on)
    same.finish()
    if not torchvision:
        print("SKIPPED: ResNet-18, for no python3 here imports torchvision; install python3-torchvision to compare it")
        sys.exit(77)


if __name__ == "__main__":
    main(sys.argv[1])
