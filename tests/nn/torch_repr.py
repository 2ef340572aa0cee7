# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of torch_repr.cpp: makes each module by its expression and compares what it prints."""
import collections  # noqa: F401
import re
import sys

import torch
import torch.nn as nn
from torch_exchange import load
from torch_layers import lacks_bias


def expected(expression):
    return repr(eval(expression)).replace("NonDynamicallyQuantizableLinear", "Linear").replace("torch.float32", "f32")


def without_later(text):
    """Without what PyTorch 1.13 does not say: the bias of norms."""
    return re.sub(r"(affine=\w+), bias=\w+", r"\1", text)


def main(folder):
    texts = load(f"{folder}/repr.safetensors")[1]
    old, wrong, left_out = not hasattr(nn, "RMSNorm"), 0, 0
    for expression, text in texts.items():
        try:
            want = expected(expression)
        except (AttributeError, TypeError):
            if not (old or lacks_bias(expression)):
                raise
            left_out += 1
            continue
        if old and any(name in expression for name in (
                "ModuleList", "ParameterList", "ParameterDict", "EmbeddingBag", "Upsample")):
            left_out += 1  # later ones put equal modules together, and quote
        elif text != want and not (old and without_later(text) == want):
            print(f"{expression}:\npeal: {text}\nPyTorch: {want}")
            wrong += 1
    print(f"{len(texts) - left_out} texts of modules against PyTorch {torch.__version__}, {left_out} left out")
    assert len(texts) > 60
    if wrong:
        sys.exit(f"{wrong} differences")


if __name__ == "__main__":
    main(sys.argv[1])
