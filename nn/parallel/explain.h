// SPDX-License-Identifier: Apache-2.0
// Explanation of a wrapper, for people: what it sends, in which order, and what that costs it.
// Thread safety: a pure function.
#pragma once

#include <peal/nn/parallel/ddp.h>

#include <string>
#include <vector>

namespace peal::nn {

std::string explain(const comm::ProcessGroup& group, const DDPOptions& options,
                    const std::vector<ParameterSpec>& specs, const Reducer& reducer);

}  // namespace peal::nn
