# SPDX-License-Identifier: Apache-2.0
"""XResNet in PyTorch, with the names and order of fastai's (which this does without), for torch_weights.py."""
import torch.nn as nn


def conv(into, out, kernel, stride=1, activated=True):
    layers = [nn.Conv2d(into, out, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(out)]
    return nn.Sequential(*layers, *([nn.ReLU()] if activated else []))


class ResBlock(nn.Module):
    def __init__(self, expansion, into, width, stride):
        super().__init__()
        into, out = into * expansion, width * expansion
        if expansion == 1:
            self.convpath = nn.Sequential(conv(into, width, 3, stride), conv(width, out, 3, activated=False))
        else:
            self.convpath = nn.Sequential(conv(into, width, 1), conv(width, width, 3, stride), conv(width, out, 1, activated=False))
        pool = [nn.AvgPool2d(stride, ceil_mode=True)] if stride != 1 else []
        self.idpath = nn.Sequential(*pool, *([conv(into, out, 1, activated=False)] if into != out else []))
        self.act = nn.ReLU()

    def forward(self, x):
        return self.act(self.convpath(x) + self.idpath(x))


class XResNet(nn.Sequential):
    def __init__(self, expansion, blocks, classes):
        widths = [64 // expansion, 64, 128, 256, 512]
        layers = []
        for i, count in enumerate(blocks):
            layers.append(nn.Sequential(*[ResBlock(expansion, widths[i if j == 0 else i + 1], widths[i + 1], 2 if i > 0 and j == 0 else 1)
                                          for j in range(count)]))
        super().__init__(conv(3, 32, 3, 2), conv(32, 32, 3), conv(32, 64, 3), nn.MaxPool2d(3, 2, 1), *layers,
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.0), nn.Linear(512 * expansion, classes))
