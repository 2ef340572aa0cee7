// SPDX-License-Identifier: Apache-2.0
// The models of the benchmarks, on random data that is the same in each run: what
// bench/peers/torch_nets.py has in PyTorch, under the same names. Thread safety: values.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/nn/module.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace peal::bench {

// What is trained: a model (or its wrapper), and what is lost by what it gives for a batch.
struct Job {
  nn::Module module;
  std::function<Tensor(nn::Module& module)> loss_of;

  Tensor loss() { return loss_of(module); }
};

struct Model {
  std::int64_t batch;  // where no other is asked for
  int steps;           // in a group
  std::function<Job(std::int64_t batch, Device device)> make;
};

const std::map<std::string, Model>& models();  // by name

}  // namespace peal::bench
