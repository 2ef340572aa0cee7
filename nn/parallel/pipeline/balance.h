// SPDX-License-Identifier: Apache-2.0
// Balance: how many layers of a model each part of a pipeline has, one after the other, as values.
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace peal::nn {

// Parts whose numbers of layers differ by at most one; the larger ones come first. Error where
// there are fewer layers than parts.
std::vector<int> balance_by_count(int layers, int parts);

// Parts of which the largest is as small as it can be, by what each layer weighs (parameters, bytes
// of activations, measured times); each part has a layer. Of several such cuts, the one whose first
// parts are largest. Error as above, and for a negative weight.
std::vector<int> balance_by_size(std::span<const std::int64_t> weights, int parts);

}  // namespace peal::nn
