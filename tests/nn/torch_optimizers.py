# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of torch_optimizers.cpp: 20 steps of each optimizer with the same gradients, in f64; parameters and
states by name. Lion, LAMB and LARS, which PyTorch has not, are written out here."""
import inspect
import sys

import torch
from torch.optim import (Adadelta, Adagrad, Adam, Adamax, AdamW, ASGD, LBFGS, NAdam, RAdam,  # noqa: F401
                         RMSprop, Rprop, SGD)
from torch_exchange import load
from torch_models import Comparison

try:
    from torch.optim import Adafactor  # noqa: F401
except ImportError:
    pass
try:
    from torch.optim import Muon, _muon  # noqa: F401

    # Its products in f64 instead of bf16, as all else here.
    exec(inspect.getsource(_muon._zeropower_via_newtonschulz).replace("bfloat16", "float64"), vars(_muon))
except ImportError:
    pass
BOUND, STEPS = 1e-12, 20


class Written(torch.optim.Optimizer):
    """One whose rule(p, g, state, group) is written out."""

    def __init__(self, groups, *values):
        super().__init__(groups, dict(zip(self.names, values)))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self.state[p]["step"] = self.state[p].get("step", 0) + 1
                    self.rule(p, p.grad, self.state[p], group)


class Lion(Written):
    names = "lr", "beta1", "beta2", "weight_decay"

    def rule(self, p, g, state, o):
        m = state.get("exp_avg", torch.zeros_like(p))
        p -= o["lr"] * (torch.sign(o["beta1"] * m + (1 - o["beta1"]) * g) + o["weight_decay"] * p)
        state["exp_avg"] = o["beta2"] * m + (1 - o["beta2"]) * g


class LAMB(Written):
    names = "lr", "beta1", "beta2", "eps", "weight_decay"

    def rule(self, p, g, state, o):
        m, v, t = state.get("exp_avg", 0), state.get("exp_avg_sq", 0), state["step"]
        m = state["exp_avg"] = o["beta1"] * m + (1 - o["beta1"]) * g
        v = state["exp_avg_sq"] = o["beta2"] * v + (1 - o["beta2"]) * g * g
        r = m / (1 - o["beta1"] ** t) / ((v / (1 - o["beta2"] ** t)).sqrt() + o["eps"]) + o["weight_decay"] * p
        trust = p.norm() / r.norm() if p.norm() > 0 and r.norm() > 0 else 1
        p -= o["lr"] * trust * r


class LARS(Written):
    names = "lr", "momentum", "weight_decay", "trust", "eps", "nesterov"

    def rule(self, p, g, state, o):
        pn, gn = p.norm(), g.norm()
        ratio = o["trust"] * pn / (gn + o["weight_decay"] * pn + o["eps"]) if pn > 0 and gn > 0 else 1
        g = (g + o["weight_decay"] * p) * ratio
        if o["momentum"]:
            b = state["momentum_buffer"] = o["momentum"] * state.get("momentum_buffer", 0) + g
            g = g + o["momentum"] * b if o["nesterov"] else b
        p -= o["lr"] * g


def run_steps(expression, tensors):
    p = [tensors[f"start.{i}"].clone().requires_grad_() for i in range(5)]
    groups = {"g": (p[:3], p[3:4]), "m": (p[:1], p[4:])}
    o = eval(expression, globals(), {name: [{"params": first}, {"params": second, "lr": 0.005}]
                                     for name, (first, second) in groups.items()})
    for t in range(STEPS):
        for i, each in enumerate(p):
            each.grad = None if (i, t) == (1, 3) else tensors[f"grad.{i}.{t}"].clone()
        if t == 10:
            for group in o.param_groups:
                group["lr"] *= 0.5
        o.step()
    return p, o


def run_lbfgs(expression):
    x = torch.tensor([-1.2, 1], dtype=torch.float64, requires_grad=True)
    y = torch.tensor([[0.5], [-1], [2]], dtype=torch.float64, requires_grad=True)
    o = eval(expression, globals(), {"p": [x, y]})

    def closure():
        o.zero_grad()
        loss = 10 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2 + ((y - 1) ** 2).sum() + 0.1 * y.sum() ** 4
        loss = -loss if "maximize" in expression else loss
        loss.backward()
        return loss

    losses = [o.step(closure).item() for _ in range(6)]
    state = o.state[x]
    return [x, y], losses, [state["n_iter"], state["func_evals"]]


def compare(same, expression, number, tensors):
    def part(prefix):
        return {key[len(prefix):]: value for key, value in tensors.items() if key.startswith(prefix)}

    bound = BOUND
    if "LBFGS" in expression:
        bound = 1e-8  # a search doubles what is rounded otherwise
        p, losses, counts = run_lbfgs(expression)
        same(f"{expression} losses", tensors[f"losses.{number}"], torch.tensor(losses, dtype=torch.float64), bound)
        same(f"{expression} counts", tensors[f"counts.{number}"], torch.tensor(counts), bound)
    else:
        p, o = run_steps(expression, tensors)
        found = part(f"state.{number}.")
        for i, each in enumerate(q for group in o.param_groups for q in group["params"]):
            for name, value in o.state[each].items():
                if name == "step" or value is None:
                    continue
                same(f"{expression} {i}.{name}", found.pop(f"{i}.{name}"), torch.as_tensor(value), bound)
        assert not found, f"{expression}: PyTorch has no {list(found)}"
    for i, each in enumerate(p):
        same(f"{expression} parameter {i}", tensors[f"after.{number}.{i}"], each.detach(), bound)


def main(folder):
    torch.set_default_dtype(torch.float64)  # of NAdam's product, too
    tensors, expressions = load(f"{folder}/optimizers.safetensors")
    same, left_out = Comparison(), []
    old = not hasattr(torch.optim, "Adafactor")
    for number, expression in expressions.items():
        # PyTorch 1.13 multiplied NAdam's product by mu twice, and let LBFGS search beyond max_eval.
        if old and ("NAdam" in expression or "LBFGS(p, 1e-3, 5, 4" in expression):
            left_out.append(expression)
            continue
        try:
            compare(same, expression, number, tensors)
        except (NameError, TypeError):  # older than the optimizer, or than an argument of it
            if not old:
                raise
            left_out.append(expression)
    # What every PyTorch has is compared, whatever an error here is called.
    assert len(left_out) <= len(expressions) // 3, f"left out: {left_out}"
    print(f"{len(expressions) - len(left_out)} optimizers ({len(left_out)} left out, as this PyTorch lacks them),", end=" ")
    same.finish()


if __name__ == "__main__":
    main(sys.argv[1])
