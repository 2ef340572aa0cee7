// SPDX-License-Identifier: Apache-2.0
// What `peal test` checks on this machine (accelerate test). Each is collective, compares with what
// must come out, throws an Error that says what came instead, and returns what it has seen. Thread
// safety: a rank's thread.
#pragma once

#include <peal/comm/group/process_group.h>
#include <peal/launch/job.h>

#include <functional>
#include <string>
#include <vector>

namespace peal::launch {

// Every collective and messages, from one element to more than a pipeline's chunk, on
// integer-valued data, for which sums are exact.
std::string check_collectives(const comm::ProcessGroup& group, Device device = {});

struct Check {
  std::string name;
  std::function<std::string(Job&)> run;
};
// Collectives over each transport by which these ranks could meet.
std::vector<Check> collectives_over_each(const Job& job);

// The shards of all ranks are a partition, of shuffled and other orders, and of what loaders give.
std::string check_samplers(Job& job);
// A linear regression on these ranks is that of one process with batches as large as all of theirs
// together (accelerate test: training_check). `strategy`: ddp, zero1, zero2 or fsdp.
std::string check_training(Job& job, const std::string& strategy, Device device);
// A run that fails within an epoch and goes on ends with the bits of one that did not.
std::string check_resume(Job& job);

}  // namespace peal::launch
