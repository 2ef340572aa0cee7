// SPDX-License-Identifier: Apache-2.0
// The tensors of a module: its parameters, buffers and state_dict, and their conversion.
#include <peal/autograd/core/deferred.h>
#include <peal/autograd/grad_slot.h>
#include <peal/autograd/ops/choose.h>
#include <peal/nn/module_body.h>
#include <peal/nn/module_keys.h>
#include <peal/nn/tied_writes.h>

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace peal::nn {

Tensor Module::add_parameter(std::string name, Tensor value) {
  Body& here = body();
  here.check_name(*this, name);
  value.set_requires_grad();
  if (is_deferred(value)) {
    std::string& known = value.storage()->deferred()->name;
    if (known.empty()) known = name;
  }
  return here.parameters.emplace_back(std::move(name), std::move(value)).second;
}

Tensor Module::remove_parameter(std::string_view name) {
  NamedTensors& list = body().parameters;
  const auto found =
      std::find_if(list.begin(), list.end(), [&](const auto& each) { return each.first == name; });
  PEAL_CHECK(found != list.end(), class_name(), ": it has no parameter '", name, "' of its own");
  const Tensor tensor = found->second;
  list.erase(found);
  return tensor;
}

Tensor Module::add_buffer(std::string name, Tensor value, bool persistent) {
  Body& here = body();
  here.check_name(*this, name);
  PEAL_CHECK(value.defined(), class_name(), ": buffer '", name, "' has no value");
  if (!persistent) here.not_persistent.insert(name);
  materialize(value);  // small, and looked at while a model is built
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

// Of what lies in one place one name is enough: the others of a tied tensor need not come.
IncompatibleKeys compare_keys(std::string_view who, const NamedTensors& own,
                              const std::vector<SavedTensor>& saved, bool strict,
                              std::size_t most_listed) {
  std::unordered_map<std::string_view, const SavedTensor*> given;
  for (const SavedTensor& each : saved) given.emplace(each.name, &each);
  using Place = std::pair<const Storage*, std::int64_t>;
  const auto place_of = [](const Tensor& tensor) {
    return Place{tensor.storage().get(), tensor.body().at};
  };
  std::map<Place, Shape> reached;  // where what comes by some name lies
  for (const auto& [name, mine] : own) {
    if (given.contains(name) && mine.numel() > 0) reached.emplace(place_of(mine), mine.shape());
  }
  std::vector<std::string> faults;
  IncompatibleKeys passed_over;
  for (const auto& [name, mine] : own) {
    const auto found = given.find(name);
    if (found == given.end()) {
      const auto tied = mine.numel() > 0 ? reached.find(place_of(mine)) : reached.end();
      if (tied != reached.end() && tied->second == mine.shape()) continue;
      if (strict) faults.push_back(concat("missing: ", name, " ", mine.dtype(), " ", mine.shape()));
      passed_over.missing_keys.push_back(name);
      continue;
    }
    const SavedTensor& from = *found->second;
    if (from.shape != mine.shape()) {
      faults.push_back(
          concat("wrong shape: ", name, ": expected ", mine.shape(), ", got ", from.shape));
    } else if (from.dtype != mine.dtype() &&
               !(is_floating(from.dtype) && is_floating(mine.dtype()))) {
      faults.push_back(
          concat("wrong type: ", name, ": expected ", mine.dtype(), ", got ", from.dtype));
    }
    given.erase(found);
  }
  for (const SavedTensor& each : saved) {
    if (!given.contains(each.name)) continue;
    if (strict) {
      faults.push_back(concat("unexpected: ", each.name, " ", each.dtype, " ", each.shape));
    }
    passed_over.unexpected_keys.push_back(each.name);
  }
  if (faults.empty()) return passed_over;
  std::string message = concat("load_state_dict: ", who, ": ", faults.size(),
                               faults.size() == 1 ? " difference" : " differences");
  for (std::size_t i = 0; i < std::min(faults.size(), most_listed); ++i) {
    message += "\n  " + faults[i];
  }
  if (faults.size() > most_listed) {
    message += concat("\n  and ", faults.size() - most_listed, " more");
  }
  fail(std::move(message));
}

IncompatibleKeys check_keys(const Module& module, const std::vector<SavedTensor>& saved,
                            bool strict) {
  return compare_keys(module.class_name(), module.state_dict(), saved, strict);
}

IncompatibleKeys Module::load_state_dict(const NamedTensors& state, bool strict) {
  std::vector<SavedTensor> saved;
  std::unordered_map<std::string_view, const Tensor*> given;
  for (const auto& [name, tensor] : state) {
    saved.push_back({name, tensor.dtype(), tensor.shape()});
    given.emplace(name, &tensor);
  }
  IncompatibleKeys passed_over = check_keys(*this, saved, strict);
  const NoGrad guard;
  TiedWrites writes(class_name());
  for (const auto& [name, own] : state_dict()) {
    const auto found = given.find(name);
    if (found != given.end()) writes.write(name, own, *found->second);
  }
  return passed_over;
}

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

// The handle and all its copies look at `value` from now on.
void become(const Tensor& tensor, const Tensor& value) {
  TensorBody& body = tensor.body();
  if (body.storage->is_piece()) value.storage()->mark_piece();
  body.storage = value.storage();
  body.at = value.body().at;
  body.dtype = value.dtype();
  if (body.slot) body.slot = std::make_shared<GradSlot>(body.shape, body.dtype, value.device());
}

// As x becomes later, where it has no values yet: `convert` of those that it will have.
Tensor converted(const Tensor& x, DType dtype, Device device,
                 const std::function<Tensor(const Tensor&)>& convert) {
  if (!is_deferred(x)) return convert(x.detach());
  const Tensor later = deferred_tensor(x.shape(), dtype, device,
                                       [from = unwritten_copy(x), convert](const Tensor& all) {
                                         all.copy_(convert(materialized(from)));
                                       });
  later.storage()->deferred()->name = x.storage()->deferred()->name;
  return later;
}

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
        become(tensor, converted(tensor, dtype, tensor.device(),
                                 [dtype](const Tensor& x) { return cast(x, dtype); }));
      }
    }
  }
}

void Module::to(Device device) {
  check_not_wrapped(*this);
  for (const NamedTensors& list : {named_parameters(), named_buffers()}) {
    for (const auto& [name, tensor] : list) {
      if (tensor.device() != device) {
        become(tensor, converted(tensor, tensor.dtype(), device,
                                 [device](const Tensor& x) { return x.to(device); }));
      }
    }
  }
}

}  // namespace peal::nn
