# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of torch_weights.cpp. `make FOLDER`: torchvision's resnet18 and a GPT-2 with the names of Hugging Face's
transformers, in evaluation, each as a file of weights and one of a batch. `check FOLDER`: the GPT-2 that peal wrote."""
import sys

import torch
from torch_exchange import load, save
from torch_gpt2 import GPT2

try:
    import torchvision
except ImportError:
    print("SKIPPED: no torchvision for this python3; install python3-torchvision to run this test")
    sys.exit(77)

SIZES = {"vocabulary": 50, "width": 24, "heads": 3, "layers": 2, "positions": 9}


def gpt2():
    torch.manual_seed(2)
    model = GPT2(**SIZES).eval()
    for name, parameter in model.named_parameters():  # nothing is left at what it begins with
        torch.nn.init.normal_(parameter, 1.0 if name.endswith(("ln_1.weight", "ln_2.weight", "ln_f.weight")) else 0.0, 0.2)
    return model


def make(folder):
    torch.manual_seed(1)
    resnet = torchvision.models.resnet18()
    for step in range(2):  # running statistics of some batches
        resnet(torch.randn(2, 3, 64, 64))
    resnet.eval()
    x = torch.randn(2, 3, 64, 64)
    save(f"{folder}/resnet18", resnet.state_dict())
    save(f"{folder}/resnet18.batch", {"x": x, "y": resnet(x)})

    model = gpt2()
    tokens = torch.randint(SIZES["vocabulary"], (2, 7))
    save(f"{folder}/gpt2.batch", {"x": tokens, "y": model(tokens)})
    state = model.state_dict()
    save(f"{folder}/gpt2.whole", state)  # as GPT2LMHeadModel.state_dict()
    del state["lm_head.weight"]
    save(f"{folder}/gpt2.shared", state)  # as save_pretrained writes it: shared tensors once
    # As the file of "gpt2": without the prefix, with the masks.
    bare = {name.removeprefix("transformer."): tensor for name, tensor in state.items()}
    for layer in range(SIZES["layers"]):
        bare[f"h.{layer}.attn.bias"] = torch.ones(9, 9).tril().view(1, 1, 9, 9)
        bare[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    save(f"{folder}/gpt2.bare", bare)
    linear = {name: tensor.t() if name.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight")) else tensor
              for name, tensor in state.items()}
    save(f"{folder}/gpt2.linear", linear)  # nanoGPT's layout


def check(folder):
    model = GPT2(**SIZES).eval()
    model.load_state_dict(load(f"{folder}/gpt2.back")[0])
    expected = gpt2().state_dict()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, expected[name]), name
    print("peal's GPT-2 in PyTorch: every tensor is the one that came from there")


if __name__ == "__main__":
    {"make": make, "check": check}[sys.argv[1]](sys.argv[2])
