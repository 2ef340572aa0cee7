// SPDX-License-Identifier: Apache-2.0
// The models of the benchmarks, on random data that is the same in each run: what
// bench/peers/torch_step.py has in PyTorch. Thread safety: values.
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
  std::int64_t batch;  // of the measurement in shared use
  int steps;           // in a group
  std::function<Job(std::int64_t batch, Device device)> make;
};

// basicnet, mlp, gpt, resnet18, tabular, awd_lstm, gpt2, gpt2_tied, resnet50.
const std::map<std::string, Model>& models();

}  // namespace peal::bench
