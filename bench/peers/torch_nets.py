# SPDX-License-Identifier: Apache-2.0
# The networks of bench/models.cpp in PyTorch; torch_jobs.py has what they are trained on.
import functools

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


by_hand = True  # attention: of plain ops, or PyTorch's scaled_dot_product_attention


@functools.lru_cache
def future(length, device):
    """What comes later than each token."""
    return torch.ones(length, length, dtype=torch.bool, device=device).triu(1)


def attention(qkv, heads, causal, p=0.):
    """Of queries, keys and values side by side."""
    batch, length, width = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
    q, k, v = qkv.view(batch, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
    if by_hand:
        scores = (q @ k.transpose(-1, -2)) * (width // heads) ** -0.5
        scores = scores.masked_fill(future(length, qkv.device), float("-inf")) if causal else scores
        y = F.dropout(scores.softmax(-1), p) @ v
    else:
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=causal)
    return y.transpose(1, 2).reshape(batch, length, width)


class GptBlock(nn.Module):
    def __init__(self, width, heads, gelu):
        super().__init__()
        self.heads, self.gelu = heads, gelu
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.attn_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.mlp_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attn_proj(attention(self.c_attn(self.ln_1(x)), self.heads, True))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate=self.gelu))


class GPT(nn.Module):
    def __init__(self, words=1000, width=256, heads=4, layers=4, positions=128, gelu="none", tied=False):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(words, width), nn.Embedding(positions, width)
        self.h = nn.Sequential(*[GptBlock(width, heads, gelu) for _ in range(layers)])
        self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        if tied:
            nn.init.normal_(self.wte.weight, std=0.02)
            self.lm_head.weight = self.wte.weight

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        return self.lm_head(self.ln_f(self.h(x)))


class BertLayer(nn.Module):
    """nn.TransformerEncoderLayer with an attention that can be chosen."""

    def __init__(self, width, heads, wide, p):
        super().__init__()
        self.heads, self.p = heads, p
        self.in_proj, self.out_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.linear1, self.linear2 = nn.Linear(width, wide), nn.Linear(wide, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x):
        y = self.out_proj(attention(self.in_proj(x), self.heads, False, self.p))
        x = self.norm1(x + F.dropout(y, self.p))
        y = self.linear2(F.dropout(F.gelu(self.linear1(x)), self.p))
        return self.norm2(x + F.dropout(y, self.p))


class BertSmall(nn.Module):
    def __init__(self, words=30522, width=512, heads=8, layers=4, p=0.1):
        super().__init__()
        self.words, self.positions, self.norm = nn.Embedding(words, width), nn.Embedding(512, width), nn.LayerNorm(width)
        self.p, self.encoder = p, nn.Sequential(*[BertLayer(width, heads, 4 * width, p) for _ in range(layers)])
        self.pooler, self.head = nn.Linear(width, width), nn.Linear(width, 2)

    def forward(self, tokens):
        x = self.words(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        return self.head(self.pooler(self.encoder(F.dropout(self.norm(x), self.p))[:, 0]).tanh())


def convolved(into, out, size, stride=1):
    return nn.Conv2d(into, out, size, stride, size // 2, bias=False), nn.BatchNorm2d(out)


def shortcut(into, out, stride):
    return nn.Sequential(*convolved(into, out, 1, stride) if stride > 1 or into != out else ())


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, into, out, stride):
        super().__init__()
        self.conv1, self.bn1 = convolved(into, out, 3, stride)
        self.conv2, self.bn2 = convolved(out, out, 3)
        self.downsample = shortcut(into, out, stride)

    def forward(self, x):
        return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + self.downsample(x))


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, into, out, stride):
        super().__init__()
        within = out // self.expansion
        self.conv1, self.bn1 = convolved(into, within, 1)
        self.conv2, self.bn2 = convolved(within, within, 3, stride)
        self.conv3, self.bn3 = convolved(within, out, 1)
        self.downsample = shortcut(into, out, stride)

    def forward(self, x):
        y = F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))
        return F.relu(self.bn3(self.conv3(y)) + self.downsample(x))


class ResNet(nn.Module):
    """torchvision's; of small images with a first convolution of 3 x 3 and no pool behind it."""

    def __init__(self, block, counts, classes, small_images):
        super().__init__()
        self.conv1, self.bn1 = convolved(3, 64, 3) if small_images else convolved(3, 64, 7, 2)
        self.pool = nn.Identity() if small_images else nn.MaxPool2d(3, 2, 1)
        blocks, into = [], 64
        for i, count in enumerate(counts):
            out = 64 * 2 ** i * block.expansion
            for k in range(count):
                blocks.append(block(into, out, 2 if i > 0 and k == 0 else 1))
                into = out
        self.layers, self.fc = nn.Sequential(*blocks), nn.Linear(into, classes)

    def forward(self, x):
        return self.fc(self.layers(self.pool(F.relu(self.bn1(self.conv1(x))))).mean((2, 3)))


class ResNet18(ResNet):
    def __init__(self, classes=10):
        super().__init__(BasicBlock, (2, 2, 2, 2), classes, small_images=True)


class ResNet50(ResNet):
    def __init__(self):
        super().__init__(Bottleneck, (3, 4, 6, 3), 1000, small_images=False)


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
