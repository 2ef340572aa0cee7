// SPDX-License-Identifier: Apache-2.0
// For torch_layers.py. usage: torch_layers FOLDER
#include "torch_layers.h"

#include <peal/autograd/core/error.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    peal::test::write_layers(std::filesystem::path(argv[1]) / "layers.safetensors");
  } catch (const peal::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
