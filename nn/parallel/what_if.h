// SPDX-License-Identifier: Apache-2.0
// What if: what a step of DDP would take with other buckets, on other networks, with more ranks. A
// model, made of what one rank's step was measured to be and of what an all_reduce costs:
//
//   a bucket's collective begins when its last gradient has come and the one before it is over;
//   what is not over when backward is, is exposed, and the step is longer by that.
//
// So one collective is on the wire at a time, compute is as fast with communication beside it as
// without, and all ranks are equally fast. Real steps are slower by what those three leave out.
// Thread safety: pure functions and values.
#pragma once

#include <peal/comm/simulate/simulate.h>
#include <peal/nn/parallel/bucket_plan.h>
#include <peal/nn/parallel/logging_data.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace peal::nn {

// A rank's step without communication, in seconds.
struct StepProfile {
  double before = 0;          // until backward begins: forward, and the loss
  double backward = 0;        //
  double after = 0;           // the optimizer
  std::vector<double> ready;  // by parameter, since backward began: its gradient had come
  double step() const { return before + backward + after; }
  // All of it in that share of the time, as on a faster machine.
  StepProfile scaled(double share) const;
};
// As it was measured, in seconds. `after` is not: it lies outside of DDP. Error where no step was.
StepProfile profile_of(const DDPLoggingData& data, double after = 0);
// Numbers of the parameters in the order in which their gradients came: what DDP plans by from the
// second step on. Those that got none are left out.
std::vector<int> arrival_of(const StepProfile& profile);

// Seconds that an all_reduce of so many bytes takes.
using CollectiveCost = std::function<double(double bytes)>;
// By an algorithm of comm/algorithms/ on a machine, simulated at some sizes between the two, with
// straight lines between them. Error where it has no plan for that many ranks.
CollectiveCost simulated_cost(const comm::Machine& machine, std::string_view algorithm,
                              std::int64_t least_bytes, std::int64_t most_bytes);

struct WhatIf {
  BucketCaps caps{};
  std::size_t buckets = 0;
  double communication = 0, exposed = 0, step = 0;  // seconds
};
// Of one plan. `travels_in`: what a hook sends gradients in, where that is narrower than their own
// type. REQUIRES: the plan is of the profile's parameters.
WhatIf what_if(const StepProfile& profile, std::span<const Bucket> plan, const CollectiveCost& cost,
               std::optional<DType> travels_in = {});
struct WhatIfOptions {
  std::vector<BucketCaps> caps{};  // without any: from 256 KiB to all in one bucket
  // Numbers of parameters in the order of the plan (plan_buckets()); without: arrival_of().
  std::vector<int> order{};
  std::optional<DType> travels_in{};
};
// Of plans with several caps. Error where the profile is of other parameters.
std::vector<WhatIf> what_if(std::span<const ParameterSpec> parameters, const StepProfile& profile,
                            const CollectiveCost& cost, const WhatIfOptions& options = {});
// A table for people; the shortest step is marked.
std::string describe(std::span<const WhatIf> table);

}  // namespace peal::nn
