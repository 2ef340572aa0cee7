# SPDX-License-Identifier: Apache-2.0
"""Evaluates the expressions of the op table (op_cases.h) in PyTorch on the inputs that peal had, and compares
outputs and gradients: f64 within 1e-10, f32 within 1e-5, relative to the largest element."""
import collections
import json
import math
import struct
import sys
import warnings

import torch
import torch.nn.functional as F

TYPES = {"F32": torch.float32, "F64": torch.float64, "I64": torch.int64, "BOOL": torch.bool}
warnings.filterwarnings("ignore", "reduction: 'mean'")  # of kl_div
BOUNDS = {"f64": 1e-10, "f32": 1e-5}


def load(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = bytearray(file.read())
    expressions = header.pop("__metadata__")
    tensors = collections.defaultdict(dict)
    for name, entry in header.items():
        case, dtype, what = name.split(".", 2)
        begin, end = entry["data_offsets"]
        content = data[begin:end]
        kind = TYPES[entry["dtype"]]
        tensor = torch.frombuffer(content, dtype=kind) if content else torch.empty(0, dtype=kind)
        tensors[case, dtype][what] = tensor.reshape(entry["shape"])
    return tensors, expressions


def numbered(tensors, what):
    count = sum(name.startswith(what + ".") for name in tensors)
    return [tensors[f"{what}.{i}"] for i in range(count)]


def difference(got, expected):
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return f"peal has {got.dtype} {tuple(got.shape)}, PyTorch {expected.dtype} {tuple(expected.shape)}"
    if got.numel() == 0:
        return 0.0
    return ((got - expected).abs().max() / expected.abs().max().clamp(min=1e-30)).item()


def lacks(expressions, case):
    """Whether this PyTorch is older than what the case calls."""
    try:
        eval(expressions.get(f"{case}.needs", "None"), {"torch": torch, "F": F})
    except (AttributeError, TypeError):
        return True
    return False


def main(folder):
    cases, expressions = load(f"{folder}/cases.safetensors")
    wrong, worst, left_out = 0, {"f64": 0.0, "f32": 0.0}, set()
    for (case, dtype), tensors in cases.items():
        if lacks(expressions, case):
            left_out.add(case)
            continue
        x = [tensor.requires_grad_() for tensor in numbered(tensors, "x")]
        y = eval(expressions[case], {"torch": torch, "F": F, "math": math, "x": x, "k": numbered(tensors, "k")})
        y.backward(tensors["seed"])
        pairs = [("output", tensors["y"], y.detach())]
        for i, grad in enumerate(numbered(tensors, "grad")):
            pairs.append((f"gradient {i}", grad, x[i].grad))
        for what, got, expected in pairs:
            error = difference(got, expected)
            if isinstance(error, str) or not error <= BOUNDS[dtype]:
                shapes = [tuple(tensor.shape) for tensor in x]
                print(f"{expressions[case]} of {shapes} in {dtype}: {what}: {error}")
                wrong += 1
            else:
                worst[dtype] = max(worst[dtype], error)
    count = len({case for case, _ in cases}) - len(left_out)
    print(f"{count} cases in f64 and f32 ({len(left_out)} left out, as this PyTorch lacks what they call), forward and gradients, against PyTorch "
          f"{torch.__version__}: largest differences {worst['f64']:.2g} and {worst['f32']:.2g}")
    if wrong:
        sys.exit(f"{wrong} differences")


if __name__ == "__main__":
    main(sys.argv[1])
