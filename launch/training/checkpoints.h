// SPDX-License-Identifier: Apache-2.0
// The checkpoints of a training: rank 0 saves after an epoch, all ranks take a run up where it was
// left, each in its own stream of random numbers too, and a run is not taken up by another one
// (other data, another number of ranks). Thread safety: one thread.
#pragma once

#include <peal/launch/job.h>
#include <peal/nn/checkpoint.h>

#include <string>
#include <vector>

namespace peal::launch {

class Checkpoints {
 public:
  // `settings` are what a run must share with the one it goes on from, to be that run. REQUIRES:
  // what the parts are of lives as long. Error for two parts of one name, and one called "random".
  Checkpoints(Job& job, std::vector<nn::Part> parts, Metadata settings);

  // Error where nothing can be saved: rather now than after an epoch.
  void try_to_save(const std::string& path) const;
  // Collective. `next_epoch` is the first that is still to come.
  // `more` goes along, for resume().
  void save(const std::string& path, int next_epoch, const Metadata& more = {}) const;
  // Loads the parts; the first epoch that is still to come. Errors: what nn::load finds, other
  // settings, and a run that has `epochs` or more behind it.
  int resume(const std::string& path, int epochs, Metadata* all = nullptr) const;

 private:
  // With the part "random", which has the word number of each rank's stream that comes next.
  std::vector<nn::Part> parts_and(nn::Part random) const;

  Job& job_;
  std::vector<nn::Part> parts_;
  Metadata settings_;
};

}  // namespace peal::launch
