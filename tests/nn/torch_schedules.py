# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of torch_schedules.cpp: makes each scheduler by its expression and compares rates and momentum."""
import sys

import torch
from torch_exchange import load
from torch_models import Comparison


def main(folder):
    same, tensors, left_out = Comparison(), load(f"{folder}/rates")[0], 0
    measures = tensors.pop("measures")
    for name, rates in tensors.items():
        momentum, expression = name.startswith("momentum "), name.replace("momentum ", "", 1)
        groups = [{"params": [torch.zeros(1, requires_grad=True)], "lr": lr} for lr in (0.4, 0.1)]
        o = torch.optim.SGD(groups, lr=1, momentum=0.5)
        try:
            scheduler, expected = eval(expression, vars(torch.optim.lr_scheduler), {"o": o}), []
        except NameError:
            if torch.__version__.startswith("2."):
                raise
            left_out += 1
            continue
        for i in range(20):
            expected.append([group[key] for group in o.param_groups for key in ["lr", "momentum"][:1 + momentum]])
            if i + 1 < 20:
                o.step()
                scheduler.step(*([measures[i].item()] if "Plateau" in name else []))
        same(name, rates, torch.tensor(expected, dtype=torch.float64), 1e-12)
    print(f"{len(tensors) - left_out} schedules ({left_out} left out, as this PyTorch lacks them),", end=" ")
    same.finish()


if __name__ == "__main__":
    main(sys.argv[1])
