// SPDX-License-Identifier: Apache-2.0
// The machine that ranks run on, measured for the simulator with small programs of rounds, through
// the same process group, executor and transport that collectives use.
//
// One-way messages between two ranks give the link; rounds in which every rank sends to the next
// at once, the wire that they share (cores included, where ranks outnumber them); the same rounds
// with recv_reduce, the arithmetic; an all_reduce of nothing, what an operation costs before its
// first round.
#pragma once

#include <peal/comm/group/process_group.h>
#include <peal/comm/simulate/simulate.h>

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

namespace peal::bench {

double median(std::vector<double> values);

// Seconds of one run of f, over as many runs as take some milliseconds, by the slowest rank; the
// same on every rank. Collective.
double time_collective(const comm::ProcessGroup& group, const std::function<void()>& f);

// Collects samples and makes a machine of their medians, so that what drifts while it measures (a
// core that slows down, a neighbour that wakes up) can be met by measuring in several sweeps.
class MachineMeasurement {
 public:
  explicit MachineMeasurement(const comm::ProcessGroup& group) : group_(group) {}
  // One sample with messages of so many bytes, a multiple of 4. Collective.
  void measure(std::int64_t bytes);
  // REQUIRES a sample. The same on every rank.
  comm::Machine machine() const;

 private:
  struct Samples {
    Tensor data;  // of its own, as a collective's: how pages are made up depends on the size
    std::vector<double> one_way, shared, reduce, copy;  // seconds
  };
  double run(comm::Program program, int rounds, const Tensor& data) const;

  const comm::ProcessGroup& group_;
  std::vector<double> start_;
  std::map<std::int64_t, Samples> samples_;  // by bytes
};

}  // namespace peal::bench
