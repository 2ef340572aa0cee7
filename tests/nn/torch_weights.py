# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of torch_weights.cpp. `make FOLDER`: torchvision's resnet18 and a GPT-2 with the names of Hugging Face's
transformers, in evaluation, each as a file of weights and one of a batch. `check FOLDER`: the GPT-2 that peal wrote."""
import sys

import torch
from torch_exchange import load, save
from torch_gpt2 import GPT2
from torch_xresnet import XResNet

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


def image_models():
    """By name; the classifiers of VGG-11 and AlexNet are narrower than the 400 MB that they really have."""
    models = torchvision.models
    for name in ("resnet18", "resnet34", "resnet50"):
        yield name, getattr(models, name)()
    for name in ("vgg11", "vgg11_bn", "alexnet"):
        with torch.no_grad():
            model = getattr(models, name)() if name == "alexnet" else getattr(models, name)(init_weights=False)
        linears = [i for i, layer in enumerate(model.classifier) if isinstance(layer, torch.nn.Linear)]
        sizes = (model.classifier[linears[0]].in_features, 32, 32, 1000)
        for i, into, out in zip(linears, sizes, sizes[1:]):
            model.classifier[i] = torch.nn.Linear(into, out)
        yield name, model
    for name, expansion, blocks in (("xresnet18", 1, (2, 2, 2, 2)), ("xresnet34", 1, (3, 4, 6, 3)), ("xresnet50", 4, (3, 4, 6, 3))):
        yield name, XResNet(expansion, blocks, 10)


def make_image_model(folder, name, model):
    side = 75 if name == "alexnet" else 64
    if name == "xresnet50":
        side = 70  # of which halves are odd
    for module in model.modules():  # nothing is left at zero
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.weight, 0.3, 0.6)
            torch.nn.init.normal_(module.bias, 0, 0.2)
    for step in range(2):  # running statistics of some batches
        model(torch.randn(2, 3, side, side))
    model.eval()
    x = torch.randn(2, 3, side, side)
    save(f"{folder}/{name}", model.state_dict())
    with torch.no_grad():
        y = model(x)
        if y.abs().max() < 1:  # nothing shall hide in small numbers
            last = [module for module in model.modules() if isinstance(module, torch.nn.Linear)][-1]
            last.weight *= 1 / y.abs().max()
            save(f"{folder}/{name}", model.state_dict())
            y = model(x)
    save(f"{folder}/{name}.batch", {"x": x, "y": y})


def make(folder):
    torch.manual_seed(1)
    for name, model in image_models():
        make_image_model(folder, name, model)

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
