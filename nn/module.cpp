// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/log.h>
#include <peal/autograd/grad_slot.h>
#include <peal/autograd/ops/choose.h>
#include <peal/comm/schedule/mix.h>
#include <peal/nn/module.h>
#include <peal/nn/module_hooks.h>

#include <algorithm>
#include <cstdlib>
#include <typeinfo>
#include <unordered_map>
#include <unordered_set>

#include <cxxabi.h>

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

namespace {

void check_name(const Module& module, std::string_view name, bool taken) {
  PEAL_CHECK(!name.empty() && name.find('.') == std::string_view::npos, module.class_name(),
             ": a name must not be empty or have a dot, got '", name, "'");
  PEAL_CHECK(!taken, module.class_name(), ": '", name, "' is registered already");
}

bool has_name(const NamedTensors& list, std::string_view name) {
  return std::any_of(list.begin(), list.end(),
                     [&](const auto& entry) { return entry.first == name; });
}

// The handle and all its copies look at `value` from now on.
void become(const Tensor& tensor, const Tensor& value) {
  TensorBody& body = tensor.body();
  body.storage = value.storage();
  body.at = value.body().at;
  body.dtype = value.dtype();
  if (body.slot) body.slot = std::make_shared<GradSlot>(body.shape, body.dtype, value.device());
}

}  // namespace

// A place among the children, which is what the handles from add() look at. It knows whose.
class Module::Place : public Module {
 public:
  Place(Module child, const std::shared_ptr<Body>& owner)
      : Module(std::move(child)), owner_(owner) {}

  // Whether the module of this place has itself become the other's, so that its members follow; or
  // is gone.
  bool follows(const Place& other) const {
    const auto owner = owner_.lock();
    return owner == nullptr ||
           (owner != other.owner_.lock() && owner->followed_by.lock() == other.owner_.lock());
  }

 private:
  std::weak_ptr<Body> owner_;
};

namespace {

thread_local const Module* running = nullptr;

// As a child of `parent`, where it is one; else its class.
std::string name_in(const Module* parent, const Module& here) {
  if (parent != nullptr) {
    for (const auto& [name, child] : parent->named_children()) {
      if (child.same_as(here)) return name;
    }
  }
  return here.class_name();
}

}  // namespace

Module::Running::Running(const Module& here) : before_(std::exchange(running, &here)) {
  if (context().detect_anomaly) {
    std::string& where = context().where;
    where_ = where.size();
    where += concat(where.empty() ? "" : ".", name_in(before_, here));
  }
  Body& body = *here.body_;
  if (before_ == nullptr || body.has_parent || before_->body_ == here.body_) return;
  if (!context().grad_enabled) return;
  body.has_parent = true;
  const std::vector<Tensor> all = here.parameters();
  if (std::none_of(all.begin(), all.end(), [](const Tensor& p) { return p.requires_grad(); })) {
    return;
  }
  log_warning(before_->class_name(), " calls a ", here.class_name(), " with ", all.size(),
              " parameters that is a child of no module, so it is not trained, saved or moved "
              "with one; register it with add(name, module)");
}

Module::Running::~Running() {
  running = before_;
  if (where_) context().where.resize(*where_);
}

Module::Module() : body_(std::make_shared<Body>()) {}

Module& Module::operator=(const Module& other) {
  const auto place = [](const Module& handle) {
    return static_cast<const Place*>(handle.slot_.get());
  };
  const bool with_parent = slot_ && other.slot_ && place(*this)->follows(*place(other));
  if (slot_ && slot_ != other.slot_ && !with_parent) {
    PEAL_CHECK(
        same_as(other), "a registered ", class_name(), " is assigned another ", other.class_name(),
        ": the module that it is a child of would go on with the old one; put the new one in "
        "its place with replace_child(name, module)");
    return *this;
  }
  if (body_ != other.body_) body_->followed_by = other.body_;
  body_ = other.body_;
  slot_ = other.slot_;
  concrete_ = other.concrete_;
  return *this;
}

Tensor Module::forward(const Tensor& x) {
  PEAL_CHECK(concrete_ != nullptr, class_name(),
             " has no forward(const Tensor&): it takes other "
             "arguments, or this is a copy made through a Module&");
  return concrete_->forward(x);
}

Tensor Module::operator()(const Tensor& x) {
  Module& here = target();
  return here.call([&here](const Tensor& input) { return here.forward(input); }, x);
}

std::shared_ptr<Module> Module::add_child(std::string name, Module child) {
  Body& here = body();
  check_name(*this, name,
             has_name(here.parameters, name) || has_name(here.buffers, name) ||
                 here.place(name) != nullptr);
  child.stay();
  child.body_->has_parent = true;
  const std::shared_ptr<Module> slot = std::make_shared<Place>(std::move(child), target().body_);
  here.children.emplace_back(std::move(name), slot);
  return slot;
}

Tensor Module::add_parameter(std::string name, Tensor value) {
  Body& here = body();
  check_name(*this, name,
             has_name(here.parameters, name) || has_name(here.buffers, name) || here.place(name));
  value.set_requires_grad();
  return here.parameters.emplace_back(std::move(name), std::move(value)).second;
}

Tensor Module::add_buffer(std::string name, Tensor value, bool persistent) {
  Body& here = body();
  check_name(*this, name,
             has_name(here.parameters, name) || has_name(here.buffers, name) || here.place(name));
  PEAL_CHECK(value.defined(), class_name(), ": buffer '", name, "' has no value");
  if (!persistent) here.not_persistent.insert(name);
  return here.buffers.emplace_back(std::move(name), std::move(value)).second;
}

NamedTensors Module::named_parameters() const { return Body::distinct(*this, &Body::parameters); }

NamedTensors Module::named_buffers() const { return Body::distinct(*this, &Body::buffers); }

std::vector<Tensor> Module::parameters() const {
  std::vector<Tensor> all;
  for (auto& [name, parameter] : named_parameters()) all.push_back(std::move(parameter));
  return all;
}

// By each of a tied tensor's names.
Tensor Module::get_parameter(std::string_view path) const {
  const auto [owner, own] = owner_of(path);
  for (const auto& [name, tensor] : owner.body().parameters) {
    if (name == own) return tensor;
  }
  fail(concat(class_name(), ": there is no parameter at '", path, "'"));
}

Tensor Module::get_buffer(std::string_view path) const {
  const auto [owner, own] = owner_of(path);
  for (const auto& [name, tensor] : owner.body().buffers) {
    if (name == own) return tensor;
  }
  fail(concat(class_name(), ": there is no buffer at '", path, "'"));
}

std::vector<std::pair<std::string, Module>> Module::named_modules() const {
  std::vector<std::pair<std::string, Module>> all{{"", self()}};
  std::unordered_set<const Body*> seen{&body()};
  Body::walk(*this, "", [&](std::string prefix, const Module& module, Body& body) {
    if (!seen.insert(&body).second) return;
    prefix.pop_back();
    all.emplace_back(std::move(prefix), module);
  });
  return all;
}

std::vector<std::pair<std::string, Module>> Module::named_children() const {
  std::vector<std::pair<std::string, Module>> all;
  for (const auto& [name, child] : body().children) all.emplace_back(name, *child);
  return all;
}

std::size_t Module::child_count() const { return body().children.size(); }

Module& Module::child_at(std::size_t i) { return *body().children.at(i).second; }

Module Module::child(std::string_view path) const { return *Body::find(*this, path); }

void Module::replace_child(std::string_view path, Module module) {
  Module& place = *Body::find(*this, path);
  module.stay();
  module.body_->has_parent = true;
  place = module;
}

namespace {

std::string name_of(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), &std::free);
  return status == 0 ? name.get() : type.name();
}

}  // namespace

const Module& Module::object() const {
  const Module& here = target();
  return here.concrete_ ? *here.concrete_ : here;
}

std::string Module::class_name() const {
  const Module& here = object();
  return name_of(typeid(here));
}

// A plain Module of a class's own object has no copy of that to hold, so it points at it.
Module Module::self() const {
  Module& here = const_cast<Module&>(target());
  Module handle(static_cast<const Module&>(here));
  handle.slot_ = nullptr;
  if (!handle.concrete_) handle.concrete_ = std::shared_ptr<Module>(std::shared_ptr<void>(), &here);
  return handle;
}

std::uint64_t Module::fingerprint() const { return body().fingerprint(1); }

void Module::stay() {
  if (!slot_) return;
  const Module& now = in_slot();
  const auto body = now.body_;
  const auto concrete = now.concrete_;
  slot_ = nullptr;
  body_ = body;
  if (concrete) concrete_ = concrete;
}

void Module::not_a(const std::type_info& type) const {
  fail(concat("call: a method of ", name_of(type), " was asked of ", class_name(),
              "; where the module was copied through a Module&, it is of the base alone"));
}

const std::shared_ptr<ModuleHooks>& Module::hooks() const { return body().hooks; }

NamedTensors Module::state_dict() const {
  NamedTensors state;
  Body::walk(*this, "", [&](const std::string& prefix, const Module&, Body& body) {
    for (const NamedTensors* list : {&body.parameters, &body.buffers}) {
      for (const auto& [name, tensor] : *list) {
        if (body.not_persistent.contains(name)) continue;
        state.emplace_back(prefix + name, tensor.detach());
      }
    }
  });
  return state;
}

IncompatibleKeys Module::load_state_dict(const NamedTensors& state, bool strict) {
  std::unordered_map<std::string_view, const Tensor*> given;
  for (const auto& [name, tensor] : state) given.emplace(name, &tensor);
  const NamedTensors all = state_dict();
  std::unordered_map<const void*, Shape> reached;  // where what comes by some name lies
  for (const auto& [name, own] : all) {
    if (given.contains(name)) reached.emplace(own.raw(), own.shape());
  }
  std::vector<std::string> faults;
  IncompatibleKeys passed_over;
  std::vector<std::pair<Tensor, Tensor>> copies;  // to, from
  for (const auto& [name, own] : all) {
    const auto found = given.find(name);
    if (found == given.end()) {
      const auto tied = reached.find(own.raw());
      if (own.numel() > 0 && tied != reached.end() && tied->second == own.shape()) continue;
      if (strict) faults.push_back(concat("missing: ", name, " ", own.dtype(), " ", own.shape()));
      passed_over.missing_keys.push_back(name);
      continue;
    }
    const Tensor& from = *found->second;
    if (from.shape() != own.shape()) {
      faults.push_back(
          concat("wrong shape: ", name, ": expected ", own.shape(), ", got ", from.shape()));
    } else if (from.dtype() != own.dtype() &&
               !(is_floating(from.dtype()) && is_floating(own.dtype()))) {
      faults.push_back(
          concat("wrong type: ", name, ": expected ", own.dtype(), ", got ", from.dtype()));
    } else {
      copies.emplace_back(own, from);
    }
    given.erase(found);
  }
  for (const auto& [name, tensor] : state) {
    if (!given.contains(name)) continue;
    if (strict) {
      faults.push_back(concat("unexpected: ", name, " ", tensor.dtype(), " ", tensor.shape()));
    }
    passed_over.unexpected_keys.push_back(name);
  }
  if (!faults.empty()) {
    std::string message = concat("load_state_dict: ", class_name(), ": ", faults.size(),
                                 faults.size() == 1 ? " difference" : " differences");
    for (const std::string& fault : faults) message += "\n  " + fault;
    fail(std::move(message));
  }
  const NoGrad guard;
  for (const auto& [own, from] : copies) own.copy_(cast(from, own.dtype()));
  return passed_over;
}

void Module::train(bool on) {
  Body::walk(*this, "", [&](const std::string&, const Module&, Body& body) { body.training = on; });
}

bool Module::training() const { return body().training; }

void Module::zero_grad() {
  for (const Tensor& parameter : parameters()) parameter.zero_grad();
}

void Module::requires_grad_(bool wanted) {
  for (const Tensor& parameter : parameters()) parameter.set_requires_grad(wanted);
}

void Module::requires_grad_(std::string_view path, bool wanted) {
  bool any = false;
  for (const auto& [name, parameter] : named_parameters()) {
    const bool below =
        name.starts_with(path) && (name.size() == path.size() || name[path.size()] == '.');
    if (below) parameter.set_requires_grad(wanted);
    any = any || below;
  }
  PEAL_CHECK(any, class_name(), ": requires_grad_: there is no parameter at '", path, "'");
}

namespace {

// A wrapper holds on to gradient slots, which a conversion replaces.
void check_not_wrapped(const Module& module) {
  for (const auto& [name, tensor] : module.named_parameters()) {
    PEAL_CHECK(!tensor.requires_grad() || !tensor.grad_slot().has_final_hook(), "to: ", name,
               " belongs to a distributed wrapper; convert the model before it is wrapped");
  }
}

}  // namespace

void Module::to(DType dtype) {
  check_not_wrapped(*this);
  PEAL_CHECK(is_floating(dtype), "to: a model is converted to a floating type, got ", dtype);
  for (const NamedTensors& list : {named_parameters(), named_buffers()}) {
    for (const auto& [name, tensor] : list) {
      if (is_floating(tensor.dtype()) && tensor.dtype() != dtype) {
        become(tensor, cast(tensor.detach(), dtype));
      }
    }
  }
}

void Module::to(Device device) {
  check_not_wrapped(*this);
  for (const NamedTensors& list : {named_parameters(), named_buffers()}) {
    for (const auto& [name, tensor] : list) {
      if (tensor.device() != device) become(tensor, tensor.detach().to(device));
    }
  }
}

}  // namespace peal::nn
