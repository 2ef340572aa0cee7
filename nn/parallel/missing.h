// SPDX-License-Identifier: Apache-2.0
// Missing gradients: what a step fails with where a parameter got none, the same on every rank:
// each name with the ranks where it was missing, as a matrix. Thread safety: as of the group.
#pragma once

#include <peal/autograd/core/safetensors.h>
#include <peal/comm/group/process_group.h>

#include <string>
#include <string_view>
#include <vector>

namespace peal::nn {

// Collective: an Error on all ranks where any misses one, and the group goes on. `missing`, by
// parameter: this rank's. `advice` ends the first part of the message.
void compare_missing(const comm::ProcessGroup& group, const NamedTensors& parameters,
                     const std::vector<bool>& missing, std::string_view step,
                     std::string_view advice);

// "a, b, c": at most 20, and the number of the others.
std::string first_names(const std::vector<std::string>& names);

// The text. `missing[r][p]`: rank r has no gradient for parameter p; `numbers`: of the ranks in the
// world. At most 20 parameters, and the number of the others.
std::string describe_missing(const std::vector<std::string>& names,
                             const std::vector<std::vector<bool>>& missing,
                             const std::vector<int>& numbers);

}  // namespace peal::nn
