# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of the exchange (torch_exchange.cpp is the other): reads a checkpoint and a batch of
peal's with nothing but the format's description, compares outputs, loss and gradients, and leaves a
model of its own."""
import json
import struct
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

TYPES = {"F32": torch.float32, "F64": torch.float64, "F16": torch.float16, "BF16": torch.bfloat16,
         "I32": torch.int32, "I64": torch.int64, "U8": torch.uint8, "I8": torch.int8, "BOOL": torch.bool}


class Net(nn.Module):
    """The network of PyTorch's MNIST example."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, 1)
        self.conv2 = nn.Conv2d(32, 64, 3, 1)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        x = torch.flatten(self.dropout1(F.max_pool2d(x, 2)), 1)
        x = self.dropout2(F.relu(self.fc1(x)))
        return F.log_softmax(self.fc2(x), dim=1)


def load(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = bytearray(file.read())
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensors[name] = torch.frombuffer(data[begin:end], dtype=TYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors, metadata


def save(path, tensors):
    names = {dtype: name for name, dtype in TYPES.items()}
    header, data, size = {}, [], 0
    for name, tensor in tensors.items():
        content = tensor.detach().contiguous().numpy().tobytes()
        header[name] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [size, size + len(content)]}
        data.append(content)
        size += len(content)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(b"".join((struct.pack("<Q", len(text)), text, *data)))


def main(folder):
    worst = {}

    def compare(what, got, expected):
        if got.shape != expected.shape:
            sys.exit(f"{what}: PyTorch has shape {tuple(got.shape)}, peal {tuple(expected.shape)}")
        worst[what] = ((got - expected).norm() / expected.norm().clamp(min=1e-12)).item()

    checkpoint, metadata = load(f"{folder}/checkpoint.safetensors")
    batch, _ = load(f"{folder}/batch.safetensors")
    assert metadata["epoch"] == "1", metadata
    net = Net().eval()
    state = {name[6:]: t for name, t in checkpoint.items() if name.startswith("model.")}
    assert list(state) == list(net.state_dict()), list(state)
    net.load_state_dict(state)
    assert sorted(k for k in checkpoint if k.startswith("optimizer.conv1.bias")) == [
        f"optimizer.conv1.bias.{name}" for name in ("exp_avg", "exp_avg_sq", "step")], list(checkpoint)
    y = net(batch["x"])
    loss = F.nll_loss(y, batch["target"])
    loss.backward()
    compare("y", y.detach(), batch["y"])
    compare("loss", loss.detach(), batch["loss"])
    for name, parameter in net.named_parameters():
        compare("grad." + name, parameter.grad, batch["grad." + name])
    kinds = [name for name in batch if name.startswith("types.")]
    assert len(kinds) == 8, kinds
    for name in kinds:
        assert batch[name].tolist() == [[0, 1, 0], [1, 0, 1]], (name, batch[name])

    for what, difference in worst.items():
        print(f"peal's {what} in PyTorch: relative difference {difference:.2g}")
    if max(worst.values()) > 1e-5:
        sys.exit("differs")

    torch.manual_seed(2)
    net = Net().eval()
    x = torch.randn(3, 1, 28, 28)
    save(f"{folder}/from_torch.safetensors", net.state_dict())
    save(f"{folder}/torch_batch.safetensors", {"x": x, "y": net(x)})


if __name__ == "__main__":
    main(sys.argv[1])
