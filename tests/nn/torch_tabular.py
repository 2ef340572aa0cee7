# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of torch_tabular.cpp: fastai's TabularModel with peal's state by its keys; outputs, gradients and
running statistics."""
import pathlib
import sys

import torch
import torch.nn.functional as F
from torch_exchange import load
from torch_models import BOUNDS, Comparison

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "bench" / "peers"))
from torch_nets import TabularModel  # noqa: E402


def compare(same, path):
    tensors, _ = load(path)
    codes, numbers = tensors["codes"], tensors["numbers"]
    bound = BOUNDS[numbers.dtype]
    state = {key[7:]: value for key, value in tensors.items() if key.startswith("before.")}
    sizes = [tuple(state[f"embeds.{i}.weight"].shape) for i in range(codes.shape[1])]
    model = TabularModel(sizes, numbers.shape[1], outputs=3, layers=(20, 10)).to(numbers.dtype)
    assert list(state) == list(model.state_dict()), sorted(state)
    model.load_state_dict(state)
    y = model(codes, numbers)
    same("output", tensors["y"], y, bound)
    F.cross_entropy(y, tensors["classes"]).backward()
    for key, parameter in model.named_parameters():
        same(f"grad {key}", tensors[f"grad.{key}"], parameter.grad, 20 * bound)
    for key, value in model.state_dict().items():
        same(f"after {key}", tensors[f"after.{key}"], value, bound)
    same("evaluation", tensors["eval"], model.eval()(codes, numbers), bound)


if __name__ == "__main__":
    comparison = Comparison()
    for name in ("f64", "f32"):
        compare(comparison, pathlib.Path(sys.argv[1]) / name)
    comparison.finish()
