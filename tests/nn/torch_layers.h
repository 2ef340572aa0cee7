// SPDX-License-Identifier: Apache-2.0
// Writes layers, what they make of their inputs and all gradients, in f64 and f32, each under the
// expression that makes the same layer in PyTorch: for torch_layers.py, and for the comparison of
// devices. Tensors are on the context's device.
#pragma once

#include <filesystem>

namespace peal::test {

void write_layers(const std::filesystem::path& path);

}  // namespace peal::test
