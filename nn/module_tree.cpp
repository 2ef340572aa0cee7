// SPDX-License-Identifier: Apache-2.0
// What is asked of a whole tree of modules: walks, places by path, its text.
#include <peal/nn/module.h>

#include <ostream>

namespace peal::nn {

Tensor Module::register_parameter(std::string name, Tensor value, bool requires_grad) {
  return add_parameter(std::move(name), std::move(value)).set_requires_grad(requires_grad);
}

std::vector<Tensor> Module::buffers() const {
  std::vector<Tensor> all;
  for (auto& [name, buffer] : named_buffers()) all.push_back(std::move(buffer));
  return all;
}

std::vector<Module> Module::modules() const {
  std::vector<Module> all;
  for (auto& [name, module] : named_modules()) all.push_back(std::move(module));
  return all;
}

std::vector<Module> Module::children() const {
  std::vector<Module> all;
  for (auto& [name, module] : named_children()) all.push_back(std::move(module));
  return all;
}

void Module::apply(const std::function<void(Module&)>& f) {
  for (std::size_t i = 0; i < child_count(); ++i) child_at(i).apply(f);
  f(target());
}

void Module::reset() {
  for (const Module& module : modules()) const_cast<Module&>(module.object()).reset_state();
}

Module Module::get_submodule(std::string_view path) const {
  return path.empty() ? self() : child(path);
}

std::pair<Module, std::string> Module::owner_of(std::string_view path) const {
  const std::size_t dot = path.rfind('.');
  if (dot == std::string_view::npos) return {self(), std::string(path)};
  return {child(path.substr(0, dot)), std::string(path.substr(dot + 1))};
}

std::string Module::repr_name() const {
  std::string name = class_name();
  name = name.substr(0, name.find('<'));
  const std::size_t colons = name.rfind("::");
  return colons == std::string::npos ? name : name.substr(colons + 2);
}

namespace {

// Lines after the first begin with two blanks more.
std::string indented(std::string text) {
  for (std::size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 3)) {
    text.insert(at + 1, "  ");
  }
  return text;
}

}  // namespace

std::string Module::repr() const {
  const Module& here = object();
  const std::string extra = here.extra_repr();
  std::vector<ChildText> children;
  for (const auto& [name, child] : named_children()) children.emplace_back(name, child.repr());
  here.shorten_repr(children);
  std::string text = here.repr_name() + "(";
  if (children.empty() && extra.find('\n') == std::string::npos) return text + extra + ")";
  if (!extra.empty()) text += "\n  " + indented(extra);
  for (const auto& [name, child] : children) text += "\n  (" + name + "): " + indented(child);
  return text + "\n)";
}

std::ostream& operator<<(std::ostream& out, const Module& module) { return out << module.repr(); }

}  // namespace peal::nn
