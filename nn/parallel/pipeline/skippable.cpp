// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/nn/parallel/pipeline/skippable.h>

#include <algorithm>

namespace peal::nn {
namespace {

SkipTable*& table_in_use() {
  thread_local SkipTable* table = nullptr;
  return table;
}

void check_declared(const Skippable& layer, const std::vector<std::string>& names,
                    std::string_view name, std::string_view verb) {
  PEAL_CHECK(std::ranges::count(names, name) == 1, layer.class_name(), " ", verb, " '", name,
             "', which it does not declare; Skippable({.", verb, " = {\"", name, "\"}}) does");
}

// Who has a name, while the layers are gone through.
struct Holder {
  int place;
  std::string stashed_by, popped_by;
};

}  // namespace

void Skippable::stash(std::string_view name, const Tensor& tensor) const {
  check_declared(*this, skips_.stash, name, "stash");
  PEAL_CHECK(tensor.defined(), class_name(), ": expected a tensor to stash as '", name,
             "', got none");
  SkipTable::current().put(name, tensor);
}

Tensor Skippable::pop(std::string_view name) const {
  check_declared(*this, skips_.pop, name, "pop");
  const Tensor tensor = SkipTable::current().take(name);
  PEAL_CHECK(tensor.defined(), class_name(), ": there is no '", name,
             "' to pop; a layer before it stashes it, once for each time it is popped");
  return tensor;
}

void SkipTable::put(std::string_view name, const Tensor& tensor) {
  tensors_.insert_or_assign(std::string(name), tensor);
}

Tensor SkipTable::take(std::string_view name) {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) return {};
  return tensors_.extract(found).mapped();
}

void SkipTable::detach() {
  for (auto& [name, tensor] : tensors_) {
    const bool wanted = tensor.requires_grad();
    tensor = tensor.detach();
    if (wanted) tensor.set_requires_grad();
  }
}

SkipTable& SkipTable::current() {
  thread_local SkipTable own;
  return table_in_use() != nullptr ? *table_in_use() : own;
}

SkipTable::Use::Use(SkipTable& table) : before_(std::exchange(table_in_use(), &table)) {}
SkipTable::Use::~Use() { table_in_use() = before_; }

std::vector<SkipRoute> skip_routes(const std::vector<std::pair<std::string, Module>>& layers) {
  std::map<std::string, Holder> holders;
  std::vector<SkipRoute> routes;
  const auto look = [&](const Skippable& layer, int place, const std::string& path) {
    for (const std::string& name : layer.skips().pop) {
      const auto holder = holders.find(name);
      PEAL_CHECK(holder != holders.end(), "skip '", name, "': ", path,
                 " pops it, and nothing before it stashes it");
      std::string& popped = holder->second.popped_by;
      PEAL_CHECK(popped.empty(), "skip '", name, "': ", popped, " pops it, and ", path,
                 " again; stash it under two names");
      popped = path;
      routes.push_back({name, holder->second.place, place});
    }
    for (const std::string& name : layer.skips().stash) {
      const auto [holder, fresh] = holders.try_emplace(name, Holder{place, path, ""});
      PEAL_CHECK(fresh, "skip '", name, "': ", holder->second.stashed_by, " stashes it, and ", path,
                 " again; give the two other names");
    }
  };
  for (int place = 0; place < static_cast<int>(layers.size()); ++place) {
    const auto& [name, layer] = layers[static_cast<std::size_t>(place)];
    for (auto [below, module] : layer.named_modules()) {
      if (const auto* const skippable = module.as<Skippable>()) {
        look(*skippable, place, below.empty() ? name : name + "." + below);
      }
    }
  }
  for (const auto& [name, holder] : holders) {
    PEAL_CHECK(!holder.popped_by.empty(), "skip '", name, "': ", holder.stashed_by,
               " stashes it, and no layer behind pops it");
  }
  std::ranges::stable_sort(routes, {}, &SkipRoute::from);
  return routes;
}

}  // namespace peal::nn
