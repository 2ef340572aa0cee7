// SPDX-License-Identifier: Apache-2.0
// What all handles of a module share, for the sources of nn/module.h alone. Thread safety: as of
// the module.
#pragma once

#include <peal/comm/schedule/mix.h>
#include <peal/nn/module.h>
#include <peal/nn/module_hooks.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

namespace peal::nn {

struct Module::Body {
  NamedTensors parameters, buffers;
  std::unordered_set<std::string> not_persistent;  // names of buffers
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> children;
  std::shared_ptr<ModuleHooks> hooks = std::make_shared<ModuleHooks>();
  bool training = true;
  bool has_parent = false;          // or was warned of
  std::weak_ptr<Body> followed_by;  // what a handle of this was assigned last

  // visit(prefix, module, body) for a module and all below it, parents first; the prefix ends in a
  // dot.
  template <class F>
  static void walk(const Module& module, const std::string& prefix, F&& visit) {
    Body& body = module.body();
    visit(prefix, module, body);
    for (const auto& [name, child] : body.children) walk(*child, prefix + name + ".", visit);
  }
  std::uint64_t fingerprint(std::uint64_t hash) const {
    for (const NamedTensors* list : {&parameters, &buffers}) {
      for (const auto& [name, tensor] : *list) {
        const auto place = reinterpret_cast<std::uintptr_t>(&tensor.body());
        comm::mix(hash, place + (tensor.requires_grad() ? 1 : 0));
      }
    }
    for (const auto& [name, child] : children) hash = child->body().fingerprint(hash);
    return hash;
  }
  // The tensors of `list` (parameters or buffers) of a module and all below it, each once.
  static NamedTensors distinct(const Module& module, NamedTensors Body::*list) {
    NamedTensors all;
    std::unordered_set<const TensorBody*> seen;
    walk(module, "", [&](const std::string& prefix, const Module&, Body& body) {
      for (const auto& [name, tensor] : body.*list) {
        if (seen.insert(&tensor.body()).second) all.emplace_back(prefix + name, tensor);
      }
    });
    return all;
  }
  // Error for a name that is empty, has a dot, or is taken in `module`, whose body this is.
  void check_name(const Module& module, std::string_view name) const {
    PEAL_CHECK(!name.empty() && name.find('.') == std::string_view::npos, module.class_name(),
               ": a name must not be empty or have a dot, got '", name, "'");
    const bool taken = has(parameters, name) || has(buffers, name) || place(name) != nullptr;
    PEAL_CHECK(!taken, module.class_name(), ": '", name, "' is registered already");
  }
  static bool has(const NamedTensors& list, std::string_view name) {
    for (const auto& [own, tensor] : list) {
      if (own == name) return true;
    }
    return false;
  }
  // The place of a direct child, or null.
  std::shared_ptr<Module> place(std::string_view name) const {
    for (const auto& [own, child] : children) {
      if (own == name) return child;
    }
    return nullptr;
  }
  // The place of the child at a path from `module`.
  static std::shared_ptr<Module> find(const Module& module, std::string_view path) {
    Body* body = &module.body();
    std::string_view rest = path;
    while (true) {
      const std::string_view name = rest.substr(0, rest.find('.'));
      const std::shared_ptr<Module> child = body->place(name);
      if (!child) {
        std::string names;
        for (const auto& [own, other] : body->children) names += (names.empty() ? "" : ", ") + own;
        PEAL_CHECK(false, module.class_name(), ": no child '", path, "': '", name,
                   "' is not one of: ", names.empty() ? "(none)" : names);
      }
      if (name.size() == rest.size()) return child;
      rest.remove_prefix(name.size() + 1);
      body = &child->body();
    }
  }
};

}  // namespace peal::nn
