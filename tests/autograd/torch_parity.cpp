// SPDX-License-Identifier: Apache-2.0
// Writes what every op of the table makes, in f64 and f32, with its inputs and gradients, for
// torch_parity.py to compare with PyTorch. usage: torch_parity FOLDER
#include <peal/autograd/core/safetensors.h>
#include <peal/autograd/tape.h>

#include "op_cases.h"

#include <cstdio>
#include <filesystem>

using namespace peal;
using namespace peal::test;

namespace {

template <class T>
void write(const OpCase& entry, const std::string& prefix, NamedTensors& tensors) {
  const Tensors x = inputs_of<T>(entry);
  const Tensor y = entry.op(x, entry.constants);
  const Tensor seed = normal<T>(y.shape(), 50);
  y.backward(seed);
  tensors.emplace_back(prefix + "y", y.detach());
  tensors.emplace_back(prefix + "seed", seed);
  for (std::size_t i = 0; i < x.size(); ++i) {
    tensors.emplace_back(concat(prefix, "x.", i), x[i].detach());
    tensors.emplace_back(concat(prefix, "grad.", i), x[i].grad());
  }
  for (std::size_t i = 0; i < entry.constants.size(); ++i) {
    tensors.emplace_back(concat(prefix, "k.", i), entry.constants[i]);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  NamedTensors tensors;
  Metadata expressions;
  try {
    const std::vector<OpCase> cases = all_cases();
    for (std::size_t i = 0; i < cases.size(); ++i) {
      expressions[std::to_string(i)] = cases[i].torch;
      if (!cases[i].needs.empty()) expressions[concat(i, ".needs")] = cases[i].needs;
      write<double>(cases[i], concat(i, ".f64."), tensors);
      write<float>(cases[i], concat(i, ".f32."), tensors);
    }
    save_safetensors(std::filesystem::path(argv[1]) / "cases.safetensors", tensors, expressions);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
