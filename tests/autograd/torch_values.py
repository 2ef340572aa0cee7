# SPDX-License-Identifier: Apache-2.0
"""Evaluates the expressions that torch_values.cpp wrote in PyTorch on the inputs that peal had, and compares types
exactly and values within 1e-6 (low precision: 1e-2); and holds tensors as text to repr()."""
import collections
import json
import math
import re
import struct
import sys

import torch
import torch.nn.functional as F

TYPES = {"F32": torch.float32, "F64": torch.float64, "F16": torch.float16, "BF16": torch.bfloat16, "I32": torch.int32,
         "I64": torch.int64, "U8": torch.uint8, "I8": torch.int8, "BOOL": torch.bool}
NAMES = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16, "i32": torch.int32,
         "i64": torch.int64, "u8": torch.uint8, "i8": torch.int8, "bool": torch.bool}


def load(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = bytearray(file.read())
    expressions = header.pop("__metadata__")
    rows = collections.defaultdict(dict)
    for name, entry in header.items():
        row, what = name.split(".", 1)
        begin, end = entry["data_offsets"]
        kind = TYPES[entry["dtype"]]
        tensor = torch.frombuffer(data[begin:end], dtype=kind) if end > begin else torch.empty(0, dtype=kind)
        rows[row][what] = tensor.reshape(entry["shape"])
    return rows, expressions


def as_peal(text):
    for name, dtype in NAMES.items():
        text = re.sub(rf"dtype={re.escape(str(dtype))}\b", f"dtype={name}", text)
    return re.sub(r"<(\w+)Backward0>", lambda match: f"<{match[1].lower()}>", text)


def fits(text, expected):
    """Whether they are equal, but for where the line breaks in front of the last word, which is longer in PyTorch."""
    return text == expected or text.replace("\n       ", " ") == expected.replace("\n       ", " ")


def main(folder):
    rows, expressions = load(f"{folder}/values.safetensors")
    wrong = texts = left_out = 0
    for row, expression in expressions.items():
        if row.startswith("text "):
            expression, text = expression.split("\n", 1)
            expected = as_peal(repr(eval(expression, {"torch": torch, "math": math, **NAMES})))
            if not fits(text, expected):
                print(f"{expression}: peal prints\n{text}\nPyTorch\n{expected}")
                wrong += 1
            texts += 1
            continue
        tensors = rows[row]
        x = [tensors[f"x.{i}"] for i in range(len(tensors) - 1)]
        got = tensors["y"]
        try:
            expected = eval(expression, {"torch": torch, "F": F, "math": math, "x": x})
        except RuntimeError as error:  # an older PyTorch has not all ops of all types
            if not any(words in str(error) for words in ("not implemented for", "Unsupported input type")):
                raise
            left_out += 1
            continue
        of = ", ".join(f"{t.dtype} {list(t.shape)}" for t in x)
        bound = 1e-2 if got.dtype in (torch.float16, torch.bfloat16) else 1e-6
        if got.dtype != expected.dtype or got.shape != expected.shape:
            print(f"{expression} of {of}: peal has {got.dtype} {list(got.shape)}, PyTorch {expected.dtype} "
                  f"{list(expected.shape)}")
            wrong += 1
        elif not torch.allclose(got.double(), expected.double(), rtol=bound, atol=bound, equal_nan=True):
            print(f"{expression} of {of}: peal has {got.tolist()}, PyTorch {expected.tolist()}")
            wrong += 1
    print(f"{len(expressions) - texts - left_out} values and types ({left_out} left out, of types that this PyTorch lacks) "
          f"and {texts} texts against PyTorch {torch.__version__}")
    if wrong:
        sys.exit(f"{wrong} differences")


if __name__ == "__main__":
    main(sys.argv[1])
