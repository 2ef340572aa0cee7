// SPDX-License-Identifier: Apache-2.0
// Nodes that the ranks of a job on one machine pretend to be on.
#pragma once

#include <peal/autograd/core/error.h>

#include <cstdlib>
#include <functional>
#include <vector>

#include "mpi_main.h"

namespace peal::testing {

// While it lives, ranks of one number say that they are on one node.
class Pretend {
 public:
  explicit Pretend(const std::function<int(int rank)>& node) {
    for (int r = 0; r < job().world(); ++r) nodes.push_back(node(r));
    setenv("PEAL_NODE", concat(node(job().rank())).c_str(), 1);
  }
  ~Pretend() { unsetenv("PEAL_NODE"); }
  Pretend(const Pretend&) = delete;
  Pretend& operator=(const Pretend&) = delete;
  std::vector<int> nodes;
};

}  // namespace peal::testing
