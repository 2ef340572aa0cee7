// SPDX-License-Identifier: Apache-2.0
// A picture of what ranks have: a bar for each model, type and strategy, of parameters, gradients,
// optimizer state, what a step gathers on top, and activations where they are known. Thread safety:
// a pure function.
#pragma once

#include <peal/nn/parallel/sharded/memory_estimate.h>

#include <string>
#include <vector>

namespace peal::launch {

struct MemoryBar {
  std::string label;
  nn::MemoryEstimate memory;
};

// REQUIRES: at least one bar.
std::string svg(const std::vector<MemoryBar>& bars, const std::string& title);

}  // namespace peal::launch
