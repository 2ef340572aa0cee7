# SPDX-License-Identifier: Apache-2.0
"""GPT-2 in PyTorch with the names of GPT2LMHeadModel in Hugging Face's transformers, without dropout. Its linear layers
are Conv1D as there, with weights [in, out], or nn.Linear as in nanoGPT, with [out, in]."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Conv1D(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs) * 0.02)
        self.bias = nn.Parameter(torch.randn(outputs) * 0.02)

    def forward(self, x):
        return x @ self.weight + self.bias


class Attention(nn.Module):
    def __init__(self, width, heads, linear):
        super().__init__()
        self.heads = heads
        self.c_attn, self.c_proj = linear(width, 3 * width), linear(width, width)

    def forward(self, x):
        batch, time, width = x.shape
        shape = (batch, time, 3, self.heads, width // self.heads)
        q, k, v = self.c_attn(x).view(shape).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / (width // self.heads) ** 0.5
        future = torch.ones(time, time, dtype=torch.bool, device=x.device).triu(1)
        y = scores.masked_fill(future, -torch.inf).softmax(-1) @ v
        return self.c_proj(y.transpose(1, 2).reshape(batch, time, width))


class MLP(nn.Module):
    def __init__(self, width, gelu, linear):
        super().__init__()
        self.c_fc, self.c_proj, self.gelu = linear(width, 4 * width), linear(4 * width, width), gelu

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate=self.gelu))


class Block(nn.Module):
    def __init__(self, width, heads, gelu, linear):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(width), Attention(width, heads, linear)
        self.ln_2, self.mlp = nn.LayerNorm(width), MLP(width, gelu, linear)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    def __init__(self, vocabulary, width, heads, layers, positions, gelu="tanh", tied=True, linear=Conv1D):
        super().__init__()
        blocks = nn.ModuleList([Block(width, heads, gelu, linear) for _ in range(layers)])
        self.transformer = nn.ModuleDict({"wte": nn.Embedding(vocabulary, width), "wpe": nn.Embedding(positions, width),
                                          "h": blocks, "ln_f": nn.LayerNorm(width)})
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        if tied:
            self.lm_head.weight = self.transformer["wte"].weight

    def forward(self, tokens):
        parts = self.transformer
        x = parts["wte"](tokens) + parts["wpe"](torch.arange(tokens.shape[1], device=tokens.device))
        for block in parts["h"]:
            x = block(x)
        return self.lm_head(parts["ln_f"](x))
