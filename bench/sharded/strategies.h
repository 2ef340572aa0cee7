// SPDX-License-Identifier: Apache-2.0
// Every way of training a net over ranks, under one face: the same batches in, the loss of the
// whole batch out, and parts of a checkpoint of the plain net. Thread safety: of one rank.
#pragma once

#include <peal/bench/sharded/nets.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace peal::bench {

// One rank's.
class Training {
 public:
  virtual ~Training() = default;
  // A step with this batch of all ranks. Collective. Gives its mean loss before it, on all.
  virtual double step(const Batch& batch) = 0;
  // "model" and "optimizer", as one process has them. Valid as long as this.
  virtual std::vector<nn::Part> parts() = 0;
  // The whole model's state, on rank 0, and nothing on others. Collective.
  NamedTensors state(int rank);
};

struct Strategy {
  std::string name;
  std::vector<int> worlds;
  std::function<std::unique_ptr<Training>(const Net&, const comm::ProcessGroup&)> make;
  // It computes with micro-batches of three rows one by one, so that a net with batch norm is
  // another function than of the whole.
  bool micro = false;
  bool buffers = true;  // they are one process's
  // It has sharded checkpoints of all ranks: what is cut by columns has not, nor have several
  // pipes, of which one saves.
  bool sharded = true;
};

// By one process: of the whole batch, or of micro-batches of `rows` each one after the other.
std::unique_ptr<Training> train_alone(const Net& net, std::int64_t rows = batch_rows);

// All that go with the net.
std::vector<Strategy> strategies(const Net& net);

}  // namespace peal::bench
