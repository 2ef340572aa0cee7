// SPDX-License-Identifier: Apache-2.0
#include <peal/nn/layers/containers.h>

namespace peal::nn {
namespace {

std::size_t place_of(const Module& list, std::int64_t i, std::size_t size) {
  const auto count = static_cast<std::int64_t>(size);
  PEAL_CHECK(i >= -count && i < count, list.class_name(), ": there is no element ", i, " of ",
             count);
  return static_cast<std::size_t>(i < 0 ? i + count : i);
}

}  // namespace

Module& ModuleSeries::operator[](std::int64_t i) { return child_at(place_of(*this, i, size())); }

void ModuleSeries::push_back(Module module) {
  add(std::to_string(child_count()), std::move(module));
}

void ModuleList::shorten_repr(std::vector<ChildText>& children) const {
  std::vector<ChildText> shorter;
  for (std::size_t i = 0, next = 0; i < children.size(); i = next) {
    while (next < children.size() && children[next].second == children[i].second) ++next;
    if (next == i + 1) {
      shorter.push_back(children[i]);
    } else {
      shorter.emplace_back(concat(children[i].first, "-", children[next - 1].first),
                           concat(next - i, " x ", children[i].second));
    }
  }
  children = std::move(shorter);
}

ModuleDict::ModuleDict(std::initializer_list<std::pair<std::string, Module>> modules) {
  for (const auto& [name, module] : modules) add(name, module);
}

bool ModuleDict::contains(std::string_view name) const {
  for (const auto& [own, module] : named_children()) {
    if (own == name) return true;
  }
  return false;
}

void ModuleDict::insert(const std::string& name, Module module) {
  if (contains(name)) {
    replace_child(name, std::move(module));
  } else {
    add(name, std::move(module));
  }
}

std::vector<std::string> ModuleDict::keys() const {
  std::vector<std::string> names;
  for (const auto& [name, module] : named_children()) names.push_back(name);
  return names;
}

void ParameterList::append(Tensor parameter) {
  add_parameter(std::to_string(size()), std::move(parameter));
}

// A tied one counts as often as it is there, which parameters() does not.
std::size_t ParameterList::size() const { return state_dict().size(); }

Tensor ParameterList::operator[](std::int64_t i) const {
  return get_parameter(std::to_string(place_of(*this, i, size())));
}

namespace {

std::string lines_of(const NamedTensors& parameters) {
  std::string text;
  for (const auto& [name, each] : parameters) {
    std::string sizes;
    for (const std::int64_t size : each.shape()) {
      sizes += (sizes.empty() ? "" : "x") + std::to_string(size);
    }
    text += concat(text.empty() ? "" : "\n", "  (", name, "): Parameter containing: [",
                   each.dtype(), " of size ", sizes, "]");
  }
  return text;
}

}  // namespace

std::string ParameterList::extra_repr() const { return lines_of(state_dict()); }

std::size_t ParameterDict::size() const { return state_dict().size(); }

bool ParameterDict::contains(std::string_view name) const {
  for (const auto& [own, each] : state_dict()) {
    if (own == name) return true;
  }
  return false;
}

void ParameterDict::insert(const std::string& name, Tensor parameter) {
  if (contains(name)) remove_parameter(name);
  add_parameter(name, std::move(parameter));
}

std::vector<std::string> ParameterDict::keys() const {
  std::vector<std::string> names;
  for (const auto& [name, each] : state_dict()) names.push_back(name);
  return names;
}

NamedTensors ParameterDict::items() const {
  NamedTensors all;
  for (const std::string& name : keys()) all.emplace_back(name, get_parameter(name));
  return all;
}

std::string ParameterDict::extra_repr() const { return lines_of(state_dict()); }

}  // namespace peal::nn
