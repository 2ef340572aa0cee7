// SPDX-License-Identifier: Apache-2.0
// Normalisation layers, whose parameters do not decay. Thread safety: pure functions.
#pragma once

#include <peal/nn/module.h>

#include <set>
#include <string>

namespace peal::launch {

// Names of the parameters of all of them.
std::set<std::string> parameters_of_norms(const nn::Module& model);
// A bias by its name, one of a layer's.
bool is_bias(const std::string& name);

}  // namespace peal::launch
