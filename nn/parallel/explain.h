// SPDX-License-Identifier: Apache-2.0
// Explanation of a wrapper, for people: what it sends, in which order, and what that costs it.
// Thread safety: a pure function.
#pragma once

#include <peal/nn/parallel/ddp.h>

#include <string>
#include <vector>

namespace peal::nn {

struct Explained {
  const comm::ProcessGroup& group;
  const DDPOptions& options;
  const BucketCaps& caps;  // of the plan
  bool order_learnt;
  const std::vector<ParameterSpec>& specs;
  const Module& module;
  const Reducer& reducer;
};

std::string explain(const Explained& wrapper);

}  // namespace peal::nn
