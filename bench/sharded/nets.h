// SPDX-License-Identifier: Apache-2.0
// The nets that all ways of training are compared on: in f64, as a Sequential, so that a pipe can
// cut them and every way has the same keys, without dropout, whose numbers are each rank's own.
// Thread safety: pure functions.
#pragma once

#include <peal/nn/nn.h>
#include <peal/nn/parallel/tensor/tensor_parallel.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace peal::bench {

inline constexpr std::int64_t batch_rows = 12;  // of all ranks, 1 to 4

struct Batch {
  Tensor x, y;

  // The share of `part` of so many.
  Batch of(int part, int parts) const {
    const std::int64_t each = batch_rows / parts;
    return {x.rows(part * each, (part + 1) * each), y.rows(part * each, (part + 1) * each)};
  }
};

// An optimizer, of a group's ranks where there is one (ZeroRedundancyOptimizer).
struct MadeOptimizer {
  std::unique_ptr<nn::Optimizer> optimizer;
  const nn::OptimizerShards* shards = nullptr;
};

struct Net {
  std::string name;
  std::function<nn::Sequential()> make;  // of the same values each time
  std::function<Batch(int step)> batch;
  // Summed over all that counts, of which a row has `counted`.
  nn::Pipe::Loss loss;
  double counted;
  std::function<MadeOptimizer(const nn::Parameters& parameters, const comm::ProcessGroup* group)>
      optimizer;
  std::vector<std::string>
      units;  // classes of modules that are sharded and recomputed by themselves
  nn::TensorParallelPlan tensor{}, sequence{};  // none: it has no sequence
  bool batch_norm = false;                      // so of micro-batches it is another function
};

Net gpt_net();       // of 5 blocks of width 32, tied
Net basic_net();     // BasicNet, of 28 x 28
Net resnet18_net();  // for small images, of 8 x 8
std::vector<Net> all_nets();

}  // namespace peal::bench
