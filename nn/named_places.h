// SPDX-License-Identifier: Apache-2.0
// The places in a module tree: named_modules() lists a module once, this at each path that it has,
// for who puts others in their places. Thread safety: as of Module.
#pragma once

#include <peal/nn/module.h>

#include <string>
#include <utility>
#include <vector>

namespace peal::nn {

using NamedPlaces = std::vector<std::pair<std::string, Module>>;

inline void add_places(const Module& parent, const std::string& prefix, NamedPlaces& all) {
  for (const auto& [name, child] : parent.named_children()) {
    all.emplace_back(prefix + name, child);
    add_places(child, prefix + name + ".", all);
  }
}

// Below the module, parents before children.
inline NamedPlaces named_places(const Module& module) {
  NamedPlaces all;
  add_places(module, "", all);
  return all;
}

}  // namespace peal::nn
