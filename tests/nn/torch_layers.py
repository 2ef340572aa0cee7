"""PyTorch's side of torch_layers.cpp: makes each layer by its expression, loads peal's state by its keys, and compares
outputs while training and in evaluation, gradients of inputs and parameters, and the state after two batches."""
import collections
import inspect
import re
import sys

import torch
import torch.nn as nn
from torch_exchange import load
from torch_models import Comparison

BOUNDS = {"f64": 1e-10, "f32": 1e-5}
LATER = ("RMSNorm", "LPPool3d", "ZeroPad1d", "ZeroPad3d", "CircularPad1d", "CircularPad2d", "CircularPad3d")  # than PyTorch 1.13


def lacks_bias(expression):
    """A norm or transformer that this PyTorch cannot make without a bias: 1.13 none, later ones not all."""
    if "bias=False" not in expression or not ("Norm" in expression or "Transformer" in expression):
        return False
    made = [getattr(nn, name, None) for name in re.findall(r"nn\.(\w+)\(", expression)]
    return not any(layer and "bias" in inspect.signature(layer).parameters for layer in made)


def flat(y):
    return [y] if isinstance(y, torch.Tensor) else [tensor for part in y for tensor in flat(part)]


def compare(same, expression, tensors, bound):
    def part(prefix):
        return {name[len(prefix):]: tensor for name, tensor in tensors.items() if name.startswith(prefix)
}

    def numbered(prefix):
        found = part(prefix)
        return [found[str(i)] for i in range(len(found))]

    make, call = expression.split("; ")
    x = [tensor.requires_grad_(tensor.is_floating_point()) for tensor in numbered("x.")]
    m = eval(make).to(next(tensor.dtype for tensor in part("y.").values()))
    state = part("before.")
    if list(state) != list(m.state_dict()):
        sys.exit(f"{make}: peal has the keys {list(state)}, PyTorch {list(m.state_dict())}")
    m.load_state_dict(state)

    def run():
        return flat(eval(call, {"m": m, "x": x, "torch": torch}))

    y = run()
    pairs = list(zip(numbered("y."), y, ("output",) * len(y)))
    sum((out * seed).sum() for out, seed in zip(y, numbered("seed."))).backward()
    pairs += [(dx, x[int(i)].grad, f"gradient of input {i}") for i, dx in part("dx.").items()]
    parameters = dict(m.named_parameters())
    pairs += [(grad, parameters[key].grad, f"gradient of {key}") for key, grad in part("grad.").items()]
    run()
    pairs += [(value, m.state_dict()[key], f"{key} after") for key, value in part("after.").items()]
    m.eval()
    pairs += list(zip(numbered("eval."), run(), ("evaluation",) * len(y)))
    assert len(part("grad.")) == len(parameters) and len(numbered("y.")) == len(y), expression
    for got, expected, what in pairs:
        same(f"{expression} of {[tuple(tensor.shape) for tensor in x]}: {what}", got, expected, bound)


def main(folder):
    tensors, expressions = load(f"{folder}/layers.safetensors")
    cases = collections.defaultdict(dict)
    for name, tensor in tensors.items():
        case, dtype, what = name.split(".", 2)
        cases[case, dtype][what] = tensor
    same, left_out = Comparison(), set()
    for (case, dtype), found in cases.items():
        expression = expressions[case]
        if lacks_bias(expression) or any(f"nn.{name}(" in expression and not hasattr(nn, name) for name in LATER):
            left_out.add(case)
            continue
        compare(same, expression, found, BOUNDS[dtype])
    print(f"{len(expressions) - len(left_out)} layers in f64 and f32 ({len(left_out)} left out, as this PyTorch lacks them),", end=" ")
    same.finish()


if __name__ == "__main__":
    main(sys.argv[1])
