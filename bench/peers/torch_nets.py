# SPDX-License-Identifier: Apache-2.0
# The models of bench/step_time.cpp in PyTorch.
import torch
import torch.nn as nn
import torch.nn.functional as F


class BasicNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = torch.flatten(self.dropout1(x), 1)
        x = self.dropout2(F.relu(self.fc1(x)))
        return F.log_softmax(self.fc2(x), 1)


def mlp():
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


class GptBlock(nn.Module):
    def __init__(self, width, heads, gelu):
        super().__init__()
        self.heads, self.gelu = heads, gelu
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.attn_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.mlp_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attn_proj(self.attention(self.c_attn(self.ln_1(x))))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate=self.gelu))

    def attention(self, qkv):
        batch, length, width = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
        q, k, v = qkv.view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        if qkv.is_cuda:  # PyTorch's fused attention, which the CPU build measured against does not have
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-1, -2)) * (width // self.heads) ** -0.5
            future = torch.ones(length, length, dtype=torch.bool).triu(1)
            y = scores.masked_fill(future, float("-inf")).softmax(-1) @ v
        return y.transpose(1, 2).reshape(batch, length, width)


class GPT(nn.Module):
    def __init__(self, words=1000, width=256, heads=4, layers=4, positions=128, gelu="none"):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(words, width), nn.Embedding(positions, width)
        self.h = nn.Sequential(*[GptBlock(width, heads, gelu) for _ in range(layers)])
        self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        return self.lm_head(self.ln_f(self.h(x)))


class BasicBlock(nn.Module):
    def __init__(self, into, out, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(into, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        same = stride == 1 and into == out
        self.downsample = nn.Sequential() if same else nn.Sequential(
            nn.Conv2d(into, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + self.downsample(x))


class ResNet18(nn.Module):
    """torchvision's, with the first convolution of small images and without the pool behind it."""

    def __init__(self, classes=10):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64)
        blocks, into = [], 64
        for out, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            blocks += [BasicBlock(into, out, stride), BasicBlock(out, out, 1)]
            into = out
        self.layers, self.fc = nn.Sequential(*blocks), nn.Linear(512, classes)

    def forward(self, x):
        return self.fc(self.layers(F.relu(self.bn1(self.conv1(x)))).mean((2, 3)))


# Of bench/models.cpp: codes and widths.
ADULT_SIZES = [(9, 5), (17, 8), (8, 5), (15, 7), (7, 5), (6, 4), (3, 3), (42, 13)]


def lin_bn_drop(into, out, bn=True, p=0., act=False):
    layers = [nn.Linear(into, out, bias=not bn)]
    layers += [nn.ReLU(inplace=True)] if act else []
    layers += [nn.BatchNorm1d(out)] if bn else []
    layers += [nn.Dropout(p)] if p else []
    return nn.Sequential(*layers)


class TabularModel(nn.Module):
    """fastai's, with its defaults, which are nn::TabularModel's."""

    def __init__(self, sizes, numbers, outputs=2, layers=(200, 100), ps=(0., 0.), embed_p=0.):
        super().__init__()
        self.embeds = nn.ModuleList(nn.Embedding(*size) for size in sizes)
        self.emb_drop, self.bn_cont = nn.Dropout(embed_p), nn.BatchNorm1d(numbers)
        wide = [sum(width for _, width in sizes) + numbers, *layers]
        hidden = [lin_bn_drop(into, out, p=p, act=True) for into, out, p in zip(wide, layers, ps)]
        self.layers = nn.Sequential(*hidden, lin_bn_drop(wide[-1], outputs, bn=False))

    def forward(self, codes, numbers):
        x = torch.cat([table(codes[:, i]) for i, table in enumerate(self.embeds)], 1)
        return self.layers(torch.cat([self.emb_drop(x), self.bn_cont(numbers)], 1))


class AwdLstm(nn.Module):
    """fastai's AWD-LSTM language model (fastai/text/models/awdlstm.py), with the probabilities of its settings."""

    def __init__(self, words, width=400, hidden=1152, layers=3, embed_p=0.02, input_p=0.25, weight_p=0.2, hidden_p=0.15,
                 output_p=0.1):
        super().__init__()
        self.p = embed_p, input_p, weight_p, hidden_p, output_p
        self.encoder = nn.Embedding(words, width, padding_idx=1)
        self.encoder.weight.data.uniform_(-0.1, 0.1)
        sizes = [width] + [hidden] * (layers - 1) + [width]
        self.rnns = nn.ModuleList([nn.LSTM(*pair, batch_first=True) for pair in zip(sizes, sizes[1:])])
        self.raw = nn.ParameterList([nn.Parameter(rnn.weight_hh_l0.data) for rnn in self.rnns])
        for rnn in self.rnns:
            del rnn._parameters["weight_hh_l0"]
        self.decoder_bias, self.state = nn.Parameter(torch.zeros(words)), [None] * layers

    @staticmethod
    def mask(x, shape, p):
        return x.new_empty(shape).bernoulli_(1 - p).div_(1 - p)

    def forward(self, tokens):
        embed_p, input_p, weight_p, hidden_p, output_p = self.p
        weight = self.encoder.weight * self.mask(self.encoder.weight.data, (self.encoder.num_embeddings, 1), embed_p)
        x = F.embedding(tokens, weight, 1)
        for i, (rnn, raw) in enumerate(zip(self.rnns, self.raw)):
            p = hidden_p if i else input_p
            x = x * self.mask(x.data, (x.shape[0], 1, x.shape[2]), p)
            rnn._parameters.pop("weight_hh_l0", None)  # to() brings it back
            rnn.weight_hh_l0 = F.dropout(raw, weight_p)
            x, state = rnn(x, self.state[i])
            self.state[i] = tuple(part.detach() for part in state)
        x = x * self.mask(x.data, (x.shape[0], 1, x.shape[2]), output_p)
        return F.linear(x, self.encoder.weight, self.decoder_bias)
