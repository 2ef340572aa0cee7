# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of torch_sync_batch_norm.cpp. PyTorch synchronises on GPUs alone; what it computes there is batch norm over
the batches of all ranks together. So its SyncBatchNorm, as convert_sync_batchnorm() makes it, gets the whole batch in one
process: outputs, gradients and running statistics of three steps, and evaluation, against peal's of 1 to 4 ranks. Old
versions run it on GPUs alone, also in one process; there the batch norm that it was made from takes its place."""
import collections
import sys

import torch
import torch.nn as nn
from torch_exchange import load

BOUNDS = {"f64": 1e-12, "f32": 2e-5}


def runs_here():
    try:
        nn.SyncBatchNorm(1)(torch.zeros(2, 1))
    except ValueError:
        return False
    return True


class Greatest:
    def __init__(self):
        self.count, self.wrong, self.worst = 0, 0, collections.defaultdict(float)

    def __call__(self, dtype, kind, what, got, expected):
        if got.shape != expected.shape or got.dtype != expected.dtype:
            sys.exit(f"{what}: peal has {got.dtype} {tuple(got.shape)}, PyTorch {expected.dtype} {tuple(expected.shape)}")
        scale = expected.detach().double().abs().clamp(min=1)
        error = ((got.double() - expected.detach().double()).abs() / scale).max().item() if got.numel() else 0.0
        self.count += 1
        self.worst[dtype, kind] = max(self.worst[dtype, kind], error)
        if not error <= BOUNDS[dtype]:
            print(f"{what}: difference {error:.2g}")
            self.wrong += 1


def compare(same, expression, dtype, tensors, synchronised):
    def part(prefix):
        return {name[len(prefix):]: tensor for name, tensor in tensors.items() if name.startswith(prefix)}

    make, shares = expression.split(";")
    converted = nn.SyncBatchNorm.convert_sync_batchnorm(eval(make))
    assert type(converted) is nn.SyncBatchNorm, make
    m = converted if synchronised else eval(make)
    m = m.to(torch.float64 if dtype == "f64" else torch.float32)
    state = part("before.")
    if list(state) != list(converted.state_dict()):
        sys.exit(f"{make}: peal has the keys {list(state)}, PyTorch {list(converted.state_dict())}")
    m.load_state_dict(state)
    where = f"{make}, {dtype}, shares{shares}"
    for step in range(3):
        x = tensors[f"x.{step}"].clone().requires_grad_()
        m.zero_grad()
        y = m(x)
        (y * tensors[f"seed.{step}"]).sum().backward()
        same(dtype, "output", f"{where}, step {step}: output", tensors[f"y.{step}"], y)
        same(dtype, "gradient of x", f"{where}, step {step}: gradient of x", tensors[f"dx.{step}"], x.grad)
        grads, parameters = part(f"grad.{step}."), dict(m.named_parameters())
        assert list(grads) == sorted(parameters), where
        for name, grad in grads.items():
            same(dtype, "gradient of parameters", f"{where}, step {step}: gradient of {name}", grad, parameters[name].grad)
        after, buffers = part(f"after.{step}."), dict(m.named_buffers())
        assert sorted(after) == sorted(buffers), where
        for name, value in after.items():
            same(dtype, "running statistics", f"{where}, step {step}: {name}", value, buffers[name])
    m.eval()
    same(dtype, "evaluation", f"{where}: evaluation", tensors["eval"], m(tensors["x.0"]))


def main(folder):
    tensors, expressions = load(f"{folder}/sync.safetensors")
    cases = collections.defaultdict(dict)
    for name, tensor in tensors.items():
        case, dtype, what = name.split(".", 2)
        cases[case, dtype][what] = tensor
    same, synchronised = Greatest(), runs_here()
    for (case, dtype), found in cases.items():
        compare(same, expressions[case], dtype, found, synchronised)
    print(f"{len(expressions)} layers and shares, {same.count} comparisons with {'SyncBatchNorm' if synchronised else 'BatchNorm'} of "
          f"PyTorch {torch.__version__}; greatest difference:")
    for (dtype, kind), worst in sorted(same.worst.items()):
        print(f"  {dtype} {kind}: {worst:.2g}")
    if same.wrong or same.count < 1000:
        sys.exit(f"{same.wrong} differences in {same.count} comparisons")


if __name__ == "__main__":
    main(sys.argv[1])
