// SPDX-License-Identifier: Apache-2.0
// The handle that a module is: its children, its class, and calls of its forward.
#include <peal/autograd/core/deferred.h>
#include <peal/autograd/core/log.h>
#include <peal/nn/module_body.h>

#include <algorithm>
#include <cstdlib>
#include <typeinfo>

#include <cxxabi.h>

namespace peal::nn {

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

  void replace(const Module& module) {
    wraps_ = module.concrete_ && module.concrete_ != first_.lock();
    static_cast<Module&>(*this) = module;
  }
  // Whether a handle from add() with the body that is here now is what has to be called: not where
  // a wrapper, which shares the body of what it wraps, took the place.
  bool stands_for(const Module& handle) const { return body_ == handle.body_ && !wraps_; }

 private:
  std::weak_ptr<Body> owner_;
  std::weak_ptr<Module> first_ = concrete_;
  bool wraps_ = false;
};

Module& Module::in_slot() {
  return static_cast<const Place&>(*slot_).stands_for(*this) ? *this : *slot_;
}

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
             " has no forward(const Tensor&): it takes other arguments, or its tensor by value, or "
             "this is a copy made through a Module&");
  return concrete_->forward(x);
}

Tensor Module::operator()(const Tensor& x) {
  Module& here = target();
  return here.call([&here](const Tensor& input) { return here.forward(input); }, x);
}

namespace {

// Those that have no values yet are called by their whole path in errors.
void name_below(const std::string& name, const Module& child) {
  if (!context().defer_init) return;
  for (const auto& [path, tensor] : child.named_parameters()) {
    if (!is_deferred(tensor)) continue;
    std::string& known = tensor.storage()->deferred()->name;
    if (known == path) known = name + "." + path;  // else it is tied to another, and called as that
  }
}

}  // namespace

std::shared_ptr<Module> Module::add_child(std::string name, Module child) {
  Body& here = body();
  here.check_name(*this, name);
  name_below(name, child);
  child.stay();
  child.body_->has_parent = true;
  const std::shared_ptr<Module> slot = std::make_shared<Place>(std::move(child), target().body_);
  here.children.emplace_back(std::move(name), slot);
  return slot;
}

bool Module::is_registered() const { return body_->has_parent; }

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
  static_cast<Place&>(place).replace(module);
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

void Module::train(bool on) {
  Body::walk(*this, "", [&](const std::string&, const Module&, Body& body) { body.training = on; });
}

bool Module::training() const { return body().training; }

}  // namespace peal::nn
