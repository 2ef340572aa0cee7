// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
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

struct NormPlace {
  std::string path;
  Module old;
};

}  // namespace

Module convert_batch_norm(Module module, std::string_view who,
                          const std::function<bool(Module&)>& leave,
                          const std::function<Module(const BatchNorm&, const std::string&)>& made) {
  if (const BatchNorm* const norm = convertible_norm(module, who, "", leave)) {
    return made(*norm, "");
  }
  std::vector<NormPlace> places;
  const auto look = [&](const auto& self, const Module& parent, const std::string& prefix) -> void {
    for (auto& [name, child] : parent.named_children()) {
      if (convertible_norm(child, who, prefix + name, leave) != nullptr) {
        places.push_back({prefix + name, child});
      } else {
        self(self, child, prefix + name + ".");
      }
    }
  };
  look(look, module, "");
  std::vector<std::pair<Module, Module>> known;
  for (NormPlace& place : places) {
    const auto same = std::find_if(known.begin(), known.end(),
                                   [&](const auto& pair) { return pair.first.same_as(place.old); });
    if (same != known.end()) {
      module.replace_child(place.path, same->second);
      continue;
    }
    const Module now = made(*place.old.as<BatchNorm>(), place.path);
    known.emplace_back(place.old, now);
    module.replace_child(place.path, now);
  }
  return module;
}

}  // namespace peal::nn
