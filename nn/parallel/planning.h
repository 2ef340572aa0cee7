// SPDX-License-Identifier: Apache-2.0
// Planning: from a model's members and the options to the plan, and to what ranks compare before
// they follow it. A plan is made when the model is wrapped; again when the second step begins, from
// the order in which rank 0's gradients came in the first (PyTorch: _rebuild_buckets); and where a
// step begins and the model has other members than before. All ranks make it in the same place, and
// of the same numbers. Thread safety: as of the group.
#pragma once

#include <peal/nn/parallel/ddp.h>
#include <peal/nn/parallel/members.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace peal::nn {

struct Planned {
  std::vector<ParameterSpec> specs;
  std::vector<Bucket> buckets;
  BucketCaps caps;  // that were chosen
};

// `order`: numbers of parameters; where it is empty, the options' counts.
Planned plan_of(const MemberList& members, const DDPOptions& options,
                const comm::ProcessGroup& group, std::span<const int> order = {});

// What f fails with, without "[ddp] " before it, for who tells the others (comm::agree_unless);
// empty where it does not.
std::string why_not(const std::function<void()>& f);

// The same where it may fail on this rank alone, as all_reduce_cost is the user's: then no plan,
// and why.
Planned plan_or_why(const MemberList& members, const DDPOptions& options,
                    const comm::ProcessGroup& group, std::string& why);
// The same between ranks that have agreed already: it fails on all of them.
Planned plan_of_all(const MemberList& members, const DDPOptions& options,
                    const comm::ProcessGroup& group, std::span<const int> order = {});

// "parameters bf16 reduce own buffers own outputs own inputs true kept false".
std::string dtypes_of(const MixedPrecision& settings);
// What is to be the same on all ranks.
std::string describe(const Planned& planned, const MemberList& members, const DDPOptions& options);

// Error for a name in the options that is none of the model's: it was to change something.
void check_names(const Module& module, const DDPOptions& options);

// Whether the order of the first step makes another plan, among several ranks: not where one was
// given, nor where steps may leave parameters out, each time others.
bool learns_order(const DDPOptions& options);

// Collective: rank 0's order. Empty where rank 0 has none of all `trained` parameters (of those
// that it uses, with static_graph); then there may be one after the next step.
std::vector<int> common_order(const comm::ProcessGroup& group, std::vector<int> mine,
                              const MemberList& members, const DDPOptions& options,
                              std::uint64_t tag);

}  // namespace peal::nn
