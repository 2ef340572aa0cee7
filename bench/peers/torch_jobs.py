# SPDX-License-Identifier: Apache-2.0
# The models of bench/models.cpp in PyTorch: by the same names, on data of the same shapes.
import collections

import torch
import torch.nn.functional as F
from torch_nets import ADULT_SIZES, GPT, AwdLstm, BasicNet, BertSmall, ResNet18, ResNet50, TabularModel, mlp

# make(batch) gives a model, its inputs, what they should give, and the loss of what they give; `tries` are the settings of
# torch_step.py that may make a difference, beside torch.compile.
Job = collections.namedtuple("Job", "make tries")


def numbers(count, words):
    return torch.arange(count) * 7 % words


def of_images(net, *sample, classes=10, loss=F.cross_entropy):
    return Job(lambda n: (net(), [torch.randn(n, *sample)], numbers(n, classes), loss), ["channels_last"])


def of_words(net, words, length, tries=("sdpa",)):
    def make(n):
        tokens = numbers(n * length, words)
        return net(), [tokens.view(n, length)], tokens, lambda out, y: F.cross_entropy(out.view(-1, words), y)
    return Job(make, list(tries))


def of_tables(n):
    codes = torch.stack([numbers(n, words) for words, _ in ADULT_SIZES], 1)
    return TabularModel(ADULT_SIZES, 6), [codes, torch.randn(n, 6)], numbers(n, 2), F.cross_entropy


def of_texts(n):
    return BertSmall(), [numbers(n * 128, 30522).view(n, 128)], numbers(n, 2), F.cross_entropy


def gpt2(tied):
    return of_words(lambda: GPT(50257, 768, 12, 12, 1024, "tanh", tied), 50257, 1024)


JOBS = {
    "basicnet": of_images(BasicNet, 1, 28, 28, loss=F.nll_loss),
    "mlp": Job(lambda n: (mlp(), [torch.randn(n, 784)], numbers(n, 10), F.cross_entropy), []),
    "tabular": Job(of_tables, []),
    "gpt": of_words(GPT, 1000, 128),
    "gpt_1024": of_words(lambda: GPT(positions=1024), 1000, 1024),
    "gpt_2048": of_words(lambda: GPT(positions=2048), 1000, 2048),
    "gpt2": gpt2(False),
    "gpt2_tied": gpt2(True),
    "bert_small": Job(of_texts, ["sdpa"]),
    "awd_lstm": of_words(lambda: AwdLstm(10000), 10000, 70, tries=()),
    "resnet18": of_images(ResNet18, 3, 32, 32),
    "resnet18_64": of_images(ResNet18, 3, 64, 64),
    "resnet50": of_images(ResNet50, 3, 224, 224, classes=1000),
}
