// SPDX-License-Identifier: Apache-2.0
// Module: a part of a model; it owns parameters, buffers and child modules, each by name.
//
// A module is a handle: copies share its parameters, buffers, children, hooks and mode (not the
// plain members of a class derived from it: those are copied, as of any value). So layers are
// written and passed by value, and a plain `Module` made from a derived class holds that class.
// Whoever keeps a module takes it as `Module` by value (a copy made through a `Module&` would be of
// the base alone, and its forward an error).
//
//   struct Net : nn::Module {
//     nn::Linear fc1 = add("fc1", nn::Linear(784, 128));
//     nn::Linear fc2 = add("fc2", nn::Linear(128, 10));
//     Tensor scale = add_parameter("scale", ones({10}));
//     Tensor forward(const Tensor& x) override { return fc2(relu(fc1(x))) * scale; }
//   };
//   Net net;
//   Tensor y = net(x);                     // runs hooks, then forward
//   nn::Module any = net;                  // the same parameters; any(x) calls Net::forward
//   for (auto& [name, p] : net.named_parameters()) ...  // scale, fc1.weight, fc1.bias, fc2.weight,
//   ...
//
// The tensors registered are the module's for good: others write into them or rebind them, nobody
// assigns another tensor to the member `scale`. What is not registered is not the module's: it is
// not trained, saved or moved. A child can be replaced by another module (replace_child; `net.fc1 =
// Linear(784, 10)` is an Error); the handle that add() returned then stands for the new one, so
// `fc1(x)` above calls it. `fc1.forward(x)` does not: it is that class's own code on the tensors
// that the member has, and passes over hooks, wrappers and what took its place. `forward` with one
// tensor is virtual; a module with another signature has a plain method for it, which runs hooks
// where it is called so:
//
//   Tensor operator()(const Tensor& q, const Tensor& k) { return call(&Attention::attend, q, k); }
//   Tensor attend(const Tensor& q, const Tensor& k);
//
// Names and order are PyTorch's: a module's own tensors first, then those of its children, all in
// order of registration, joined by dots.
//
// Thread safety: a module belongs to one thread at a time.
#pragma once

#include <peal/autograd/core/safetensors.h>
#include <peal/autograd/core/tensor.h>
#include <peal/nn/each_tensor.h>

#include <fmt/core.h>
#include <concepts>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

namespace peal::nn {

class Module;
struct ModuleHooks;

template <class M>
concept ModuleType = std::derived_from<M, Module> && !std::same_as<M, Module>;

// What an M&& takes a module as.
template <class M>
concept ModuleArgument = std::derived_from<std::remove_cvref_t<M>, Module>;

// A class whose forward of one tensor stands beside the virtual one instead of overriding it, so
// that calling the module would not find it: it takes the tensor by value, or is const.
template <class M>
concept HidesForward = requires {
  static_cast<Tensor (M::*)(Tensor)>(&M::forward);
}
|| requires { static_cast<Tensor (M::*)(Tensor) const>(&M::forward); }
|| requires { static_cast<Tensor (M::*)(const Tensor&) const>(&M::forward); };

// The keys that one side has and the other has not, of a load_state_dict that passed over them.
struct IncompatibleKeys {
  std::vector<std::string> missing_keys, unexpected_keys;  // not in the state; not in the module
};

class Module {
 public:
  // Hooks get all tensors that go into forward and come out of it, in order, or their gradients
  // (undefined where there is none), and return as many others, or nothing to keep them. A hook
  // gets the module as an argument because one that captured it would keep it alive for ever.
  using Replaced = std::optional<Tensors>;
  using ForwardPreHook = std::function<Replaced(Module& module, const Tensors& inputs)>;
  using ForwardHook =
      std::function<Replaced(Module& module, const Tensors& inputs, const Tensors& outputs)>;
  using BackwardPreHook = std::function<Replaced(Module& module, const Tensors& grad_outputs)>;
  using BackwardHook = std::function<Replaced(Module& module, const Tensors& grad_inputs,
                                              const Tensors& grad_outputs)>;
  // For modules of one tensor: an undefined one keeps what there is.
  using PreHook = std::function<Tensor(Module& module, const Tensor& input)>;
  using Hook = std::function<Tensor(Module& module, const Tensor& input, const Tensor& output)>;

  Module();
  Module(const Module&) = default;
  // Error for a registered child that is given another module: its parent would not follow. Whole
  // models are assigned with all their children.
  Module& operator=(const Module& other);
  virtual ~Module() = default;
  // Any module as a plain Module.
  template <ModuleType M>
  Module(const M& module)  // NOLINT: meant as a conversion
      : body_(module.body_), slot_(module.slot_), concrete_(std::make_shared<M>(module)) {
    static_assert(!HidesForward<M>,
                  "a module's forward is written `Tensor forward(const Tensor& x) override`");
    concrete_->slot_ = nullptr;
  }
  template <ModuleType M>
  Module& operator=(const M& module) {
    return *this = Module(module);
  }

  // Error where the class does not override it.
  virtual Tensor forward(const Tensor& x);
  // forward between the hooks.
  Tensor operator()(const Tensor& x);
  // f(args...) between the hooks: f is a method of the class that this holds (also where this is a
  // plain Module or a wrapper: ddp.call(&Net::encode, x, mask)), or any function. Hooks see the
  // tensors among the arguments and in the result: Tensor, lists, maps, pairs, tuples and optionals
  // of them, and structs that show theirs by `auto fields() { return std::tie(output, h); }`. Other
  // arguments are passed on; another class as the result does not compile.
  template <class F, class... Args>
  auto call(F&& f, const Args&... args);

  // Registration, in constructors mostly. Error for a name that is taken, empty or has a dot. What
  // it gives, and `child` itself where its module was not registered anywhere before (a member:
  // `Net() : fc(2, 3) { add("fc", fc); }`), stand for what is in that place from then on.
  template <ModuleArgument M>
  std::remove_cvref_t<M> add(std::string name, M&& child) {
    [[maybe_unused]] const bool first = !child.is_registered();
    std::remove_cvref_t<M> added = std::forward<M>(child);
    added.slot_ = add_child(std::move(name), added);
    if constexpr (std::is_lvalue_reference_v<M> && !std::is_const_v<std::remove_reference_t<M>>) {
      if (first) child.slot_ = added.slot_;
    }
    return added;
  }
  // Makes it require a gradient.
  Tensor add_parameter(std::string name, Tensor value);
  // Takes one of this module's own away from it, and gives it; the tensor stays what it is. Error
  // where there is none of that name. Before an optimizer or a parallel wrapper has it.
  Tensor remove_parameter(std::string_view name);
  // Not trained, but saved and loaded with the module; a buffer that is not persistent (a mask, a
  // cache) is in no state_dict.
  Tensor add_buffer(std::string name, Tensor value, bool persistent = true);

  // The same by PyTorch's names.
  template <ModuleArgument M>
  std::remove_cvref_t<M> register_module(std::string name, M&& child) {
    return add(std::move(name), std::forward<M>(child));
  }
  Tensor register_parameter(std::string name, Tensor value, bool requires_grad = true);
  Tensor register_buffer(std::string name, Tensor value, bool persistent = true) {
    return add_buffer(std::move(name), std::move(value), persistent);
  }

  // Of this module and all below it. A tensor registered twice (tied) comes once, by its first
  // name.
  NamedTensors named_parameters() const;
  NamedTensors named_buffers() const;
  std::vector<Tensor> parameters() const;
  std::vector<Tensor> buffers() const;
  // This module, by the name "", and all below it, parents before children, each once. The handle
  // of this module itself is valid as long as it.
  std::vector<std::pair<std::string, Module>> named_modules() const;
  std::vector<Module> modules() const;
  // The direct ones, in order.
  std::vector<std::pair<std::string, Module>> named_children() const;
  std::vector<Module> children() const;
  // f of all below this module and then of itself, children before parents:
  //   net.apply([](nn::Module& m) { if (auto* linear = m.as<nn::Linear>()) ...; });
  void apply(const std::function<void(Module&)>& f);
  // By name, or by a path of names: "layer1.0.conv1". Error that lists the names there are.
  Module child(std::string_view path) const;
  // The same, and "" is this module; a parameter or buffer at such a path: "layer1.0.conv1.weight".
  Module get_submodule(std::string_view path) const;
  Tensor get_parameter(std::string_view path) const;
  Tensor get_buffer(std::string_view path) const;
  // Puts `module` in the place of the child at `path`. It may hold the old one as a child of its
  // own.
  void replace_child(std::string_view path, Module module);
  // This as an M, or null when it is of another class; a wrapper of a module (DDP) is that module,
  // too. Valid as long as this handle.
  template <class M>
  M* as() {
    for (Module* at = &target(); at != nullptr; at = at->concrete_.get()) {
      if (M* const found = dynamic_cast<M*>(at)) return found;
    }
    return nullptr;
  }
  // The class, for messages: "peal::nn::Linear".
  std::string class_name() const;
  // The model as PyTorch prints it: a class and its extra_repr, children below it.
  std::string repr() const;
  // Changes when a parameter or buffer below joins, leaves or is replaced by another tensor, and
  // when a parameter is frozen or thawed. Cheap.
  std::uint64_t fingerprint() const;
  bool same_as(const Module& other) const { return target().body_ == other.target().body_; }

  // Parameters and persistent buffers by PyTorch's keys, sharing storage with the module; a tied
  // tensor comes by each of its names.
  NamedTensors state_dict() const;
  // Copies elements into the module's tensors; floating types convert. A tied tensor may come by
  // any of its names. strict: an error that lists every missing key, unexpected key and wrong
  // shape, and then nothing is copied. Not strict: keys that only one side has are passed over, and
  // returned.
  IncompatibleKeys load_state_dict(const NamedTensors& state, bool strict = true);

  void train(bool on = true);
  void eval() { train(false); }
  bool training() const;
  bool is_training() const { return training(); }
  void zero_grad();
  // What modules below keep from one call to the next (the state of a recurrent one) begins anew:
  // reset_state() of each.
  void reset();
  // Freezes and thaws: all parameters below, or those at a path of names ("conv1", "fc.bias");
  // Error where there are none. A frozen one gets no gradient, and optimizers pass it over.
  // Under a parallel wrapper: between steps, and alike on all ranks.
  void requires_grad_(bool wanted);
  void requires_grad_(std::string_view path, bool wanted);
  void requires_grad_(const char*) = delete;  // a path alone would be taken for `true`
  // Converts floating parameters and buffers in place (handles stay valid; gradients are dropped).
  // REQUIRES: before an optimizer or a parallel wrapper holds on to their storage.
  void to(DType dtype);
  void to(Device device);

  // Run in the order in which they were added; the id removes one. Before and after forward; before
  // the module's part of a backward, when the gradients of its outputs are there; and after it,
  // when those of its inputs are (where no input wants one: with the outputs').
  std::uint64_t register_forward_pre_hook(ForwardPreHook hook);
  std::uint64_t register_forward_hook(ForwardHook hook);
  std::uint64_t register_full_backward_pre_hook(BackwardPreHook hook);
  std::uint64_t register_full_backward_hook(BackwardHook hook);
  std::uint64_t add_pre_hook(PreHook hook);  // forward_pre_hook and forward_hook of one tensor
  std::uint64_t add_hook(Hook hook);
  void remove_hook(std::uint64_t id);
  // Whether a call runs any. A parent that computes with a child's parameters itself asks before.
  bool has_hooks() const;
  // Its forward computes with what is made of its parameters just before (computed_parameter.h).
  bool computes_parameters() const;

 protected:
  // What stands in the parentheses: "in_features=5, out_features=7, bias=True".
  virtual std::string extra_repr() const { return {}; }
  // The class without its namespaces.
  virtual std::string repr_name() const;
  // Texts of children with what stands before them, "(0): ", which a container may put together.
  using ChildText = std::pair<std::string, std::string>;  // name, text
  virtual void shorten_repr(std::vector<ChildText>&) const {}
  // Such state belongs into a buffer that is not persistent, or is shared by copies in another way.
  virtual void reset_state() {}

  // For wrappers: this handle stands for the module that it has now, whatever takes its place in
  // the parent.
  void stay();
  // For containers: the direct children without copies.
  std::size_t child_count() const;
  Module& child_at(std::size_t i);

 private:
  struct Body;
  class Place;
  class HookedCall;
  friend void compute_before_forward(Module& module, const Tensor& weight,
                                     std::function<Tensor(bool training)> compute);
  // While it lives, this thread runs the module's forward. A module that is called in another's
  // forward, is a child of none and would be trained was forgotten, mostly: it is told, once.
  class Running {
   public:
    explicit Running(const Module& here);
    ~Running();
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;

   private:
    const Module* before_;
    std::optional<std::size_t> where_;  // how long Context::where was, under DetectAnomaly
  };

  // The parts of call(): hooks may replace elements of `tensors`, never their number.
  std::shared_ptr<HookedCall> before_forward(Tensors& inputs);
  static void after_forward(const std::shared_ptr<HookedCall>& call, Tensors& outputs);
  const std::shared_ptr<ModuleHooks>& hooks() const;
  // f's object. Error where this holds none of its class.
  template <class R, class M, class... P>
  M& object_of(R (M::*)(P...));
  template <class R, class M, class... P>
  M& object_of(R (M::*)(P...) const);
  [[noreturn]] void not_a(const std::type_info& type) const;

  std::shared_ptr<Module> add_child(std::string name, Module child);
  bool is_registered() const;  // as a child of any module
  // What this stands for, with its class.
  const Module& object() const;
  Module self() const;
  // The module that a tensor at `path` belongs to, and the tensor's name there.
  std::pair<Module, std::string> owner_of(std::string_view path) const;
  // Where this handle came from add(): what stands in that place now.
  Module& target() { return slot_ ? in_slot() : *this; }
  const Module& target() const { return slot_ ? const_cast<Module*>(this)->in_slot() : *this; }
  Module& in_slot();
  Body& body() const { return *target().body_; }

  std::shared_ptr<Body> body_;
  std::shared_ptr<Module> slot_;  // the place in the parent, for a handle that add() returned
  std::shared_ptr<Module>
      concrete_;  // a plain Module made from a derived class: that class's object
};

template <class R, class M, class... P>
M& Module::object_of(R (M::*)(P...)) {
  M* const here = as<M>();
  if (here == nullptr) not_a(typeid(M));
  return *here;
}

template <class R, class M, class... P>
M& Module::object_of(R (M::*)(P...) const) {
  return object_of(static_cast<void (M::*)()>(nullptr));
}

template <class F, class... Args>
auto Module::call(F&& f, const Args&... args) {
  const auto run = [&](const auto&... given) {
    if constexpr (std::is_member_function_pointer_v<std::remove_cvref_t<F>>) {
      return std::invoke(f, object_of(f), given...);
    } else {
      return std::invoke(f, given...);
    }
  };
  const Running guard(target());
  using Result = std::remove_cvref_t<decltype(run(args...))>;
  static_assert(ShowsTensors<Result>,
                "call: hooks look for the tensors in what a forward gives: let the struct show its "
                "own by `auto fields() { return std::tie(output, h); }`, with <tuple>");
  if (!has_hooks()) return run(args...);
  std::tuple<Args...> given(args...);
  Tensors inputs;
  each_tensor(given, [&](const Tensor& each) { inputs.push_back(each); });
  const auto hooked = before_forward(inputs);
  auto at = inputs.begin();
  each_tensor(given, [&](Tensor& each) { each = *at++; });
  auto result = std::apply(run, given);
  Tensors outputs;
  each_tensor(result, [&](const Tensor& each) { outputs.push_back(each); });
  after_forward(hooked, outputs);
  at = outputs.begin();
  each_tensor(result, [&](Tensor& each) { each = *at++; });
  return result;
}

// As repr().
std::ostream& operator<<(std::ostream& out, const Module& module);

}  // namespace peal::nn

template <std::derived_from<peal::nn::Module> M>
struct fmt::formatter<M> {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  template <class Context>
  auto format(const M& module, Context& context) const {
    return fmt::format_to(context.out(), "{}", module.repr());
  }
};
