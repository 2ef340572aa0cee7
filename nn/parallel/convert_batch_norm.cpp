// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/nn/named_places.h>
#include <peal/nn/parallel/convert_batch_norm.h>

#include <algorithm>
#include <typeinfo>
#include <utility>
#include <vector>

namespace peal::nn {
namespace {

// Null where it is none of peal's that are to be converted.
BatchNorm* convertible_norm(Module& module, std::string_view who, const std::string& path,
                            const std::function<bool(Module&)>& leave) {
  auto* const norm = module.as<BatchNorm>();
  if (norm == nullptr || leave(module)) return nullptr;
  const std::type_info& type = typeid(*norm);
  const std::string where = concat(who, path.empty() ? "" : ": ", path);
  PEAL_CHECK(
      type == typeid(BatchNorm1d) || type == typeid(BatchNorm2d) || type == typeid(BatchNorm3d),
      where, " is a ", module.class_name(),
      ", whose own forward would be lost; replace it by hand (Module::replace_child)");
  PEAL_CHECK(!module.has_hooks(), where,
             " has hooks, which the one in its place would not have; convert first, and register "
             "them then");
  return norm;
}

}  // namespace

Module convert_batch_norm(Module module, std::string_view who,
                          const std::function<bool(Module&)>& leave,
                          const std::function<Module(const BatchNorm&, const std::string&)>& made) {
  if (const BatchNorm* const norm = convertible_norm(module, who, "", leave)) {
    return made(*norm, "");
  }
  NamedPlaces places;
  for (auto& [path, child] : named_places(module)) {
    if (convertible_norm(child, who, path, leave) != nullptr) places.emplace_back(path, child);
  }
  std::vector<std::pair<Module, Module>> known;
  for (auto& [path, old] : places) {
    const auto same = std::find_if(known.begin(), known.end(),
                                   [&](const auto& pair) { return pair.first.same_as(old); });
    if (same != known.end()) {
      module.replace_child(path, same->second);
      continue;
    }
    const Module now = made(*old.as<BatchNorm>(), path);
    known.emplace_back(old, now);
    module.replace_child(path, now);
  }
  return module;
}

}  // namespace peal::nn
