// SPDX-License-Identifier: Apache-2.0
// Containers of modules and parameters, registered under numbers or names: PyTorch's ModuleList,
// ModuleDict, ParameterList and ParameterDict, and what Sequential shares with the first.
//
//   nn::ModuleList blocks = add("blocks", nn::ModuleList());
//   for (int i = 0; i < 3; ++i) blocks.append(Block(64));
//   for (nn::Module& block : blocks) x = block(x);
//
// Elements come as Module&, which stands for what is in that place: `list[i](x)` calls it, and
// `list[i].as<Block>()` is the class itself. Thread safety: as of Module.
#pragma once

#include <peal/nn/module.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace peal::nn {

// Modules by number, from "0" on.
class ModuleSeries : public Module {
 public:
  std::size_t size() const { return child_count(); }
  bool empty() const { return child_count() == 0; }
  // From the end where i is negative; Error past it.
  Module& operator[](std::int64_t i);
  // Under the next number.
  void push_back(Module module);
  void append(Module module) { push_back(std::move(module)); }
  void extend(const std::vector<Module>& modules) {
    for (const Module& each : modules) push_back(each);
  }

  class Iterator {
   public:
    using value_type = Module;
    using difference_type = std::ptrdiff_t;
    Iterator() = default;
    Iterator(ModuleSeries* series, std::int64_t at) : series_(series), at_(at) {}
    Module& operator*() const { return (*series_)[at_]; }
    Module* operator->() const { return &**this; }
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    Iterator operator++(int) { return {series_, at_++}; }
    bool operator==(const Iterator& other) const { return at_ == other.at_; }

   private:
    ModuleSeries* series_ = nullptr;
    std::int64_t at_ = 0;
  };
  Iterator begin() { return {this, 0}; }
  Iterator end() { return {this, static_cast<std::int64_t>(size())}; }

 protected:
  ModuleSeries() = default;
};

// Has no forward: who holds it says what happens with its modules.
class ModuleList : public ModuleSeries {
 public:
  template <std::derived_from<Module>... M>
  explicit ModuleList(M... modules) {
    (push_back(std::move(modules)), ...);
  }
  explicit ModuleList(const std::vector<Module>& modules) { extend(modules); }

 protected:
  void shorten_repr(std::vector<ChildText>& children) const override;
};

class ModuleDict : public Module {
 public:
  ModuleDict() = default;
  ModuleDict(std::initializer_list<std::pair<std::string, Module>> modules);
  std::size_t size() const { return child_count(); }
  bool contains(std::string_view name) const;
  // Error that lists the names there are.
  Module operator[](std::string_view name) const { return child(name); }
  // Adds, or takes the place of what has this name.
  void insert(const std::string& name, Module module);
  std::vector<std::string> keys() const;
  std::vector<std::pair<std::string, Module>> items() const { return named_children(); }
};

class ParameterList : public Module {
 public:
  ParameterList() = default;
  explicit ParameterList(const std::vector<Tensor>& parameters) {
    for (const Tensor& each : parameters) append(each);
  }
  std::size_t size() const;  // a tied parameter comes as often as it was appended
  void append(Tensor parameter);
  Tensor operator[](std::int64_t i) const;

 protected:
  std::string extra_repr() const override;
};

class ParameterDict : public Module {
 public:
  ParameterDict() = default;
  ParameterDict(std::initializer_list<std::pair<std::string, Tensor>> parameters) {
    for (const auto& [name, each] : parameters) insert(name, each);
  }
  std::size_t size() const;
  bool contains(std::string_view name) const;
  // Error where there is none of this name.
  Tensor operator[](std::string_view name) const { return get_parameter(name); }
  // Adds, or takes the place of what has this name, at the end.
  void insert(const std::string& name, Tensor parameter);
  std::vector<std::string> keys() const;
  NamedTensors items() const;

 protected:
  std::string extra_repr() const override;
};

}  // namespace peal::nn
