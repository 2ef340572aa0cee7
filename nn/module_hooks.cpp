// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/tape.h>
#include <peal/nn/module_hooks.h>

#include <string_view>

namespace peal::nn {
namespace {

void replace(std::string_view what, const Module& module, Tensors& tensors,
             Module::Replaced others) {
  if (!others) return;
  PEAL_CHECK(others->size() == tensors.size(), module.class_name(), ": a hook gave ",
             others->size(), " ", what, " for ", tensors.size());
  tensors = std::move(*others);
}

// Which of them wait for gradients.
std::vector<std::size_t> wanting(const Tensors& tensors) {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (context().grad_enabled && tensors[i].requires_grad()) places.push_back(i);
  }
  return places;
}

// Puts a node that does nothing but call `f` between these tensors and whoever uses them. f gets
// all their gradients and may exchange them.
void watch(std::string_view op, Tensors& tensors, const std::vector<std::size_t>& places,
           std::function<void(Tensors& grads)> f) {
  Tensors before, after;
  for (const std::size_t place : places) {
    before.push_back(tensors[place]);
    after.push_back(tensors[place].detach());
  }
  record(op, after, before,
         [f = std::move(f), places, count = tensors.size()](const Tensors& grads, Needs) {
           Tensors all(count), wanted;
           for (std::size_t i = 0; i < places.size(); ++i) all[places[i]] = grads[i];
           f(all);
           for (const std::size_t place : places) wanted.push_back(all[place]);
           return wanted;
         });
  for (std::size_t i = 0; i < places.size(); ++i) tensors[places[i]] = after[i];
}

}  // namespace

// One call of forward, and what its part of a backward has to know.
class Module::HookedCall {
 public:
  HookedCall(Module& module, std::shared_ptr<ModuleHooks> hooks)
      : module_(module), plain_(static_cast<const Module&>(module)), hooks_(std::move(hooks)) {}

  static void before(const std::shared_ptr<HookedCall>& call, Tensors& inputs) {
    call->hooks_->before_forward.run([&](const ForwardPreHook& hook) {
      replace("inputs", call->plain_, inputs, hook(call->module_, inputs));
    });
    call->inputs_ = inputs;
    if (!call->hooks_->in_backward()) return;
    const auto places = wanting(inputs);
    call->input_wants_ = !places.empty();
    if (places.empty()) return;
    watch("module's inputs", inputs, places, [call](Tensors& grads) { call->leave(grads); });
    call->inputs_ = inputs;
  }

  static void after(const std::shared_ptr<HookedCall>& call, Tensors& outputs) {
    call->hooks_->after_forward.run([&](const ForwardHook& hook) {
      replace("outputs", call->plain_, outputs, hook(call->module_, call->inputs_, outputs));
    });
    const std::size_t count = call->inputs_.size();
    call->inputs_.clear();  // the nodes hold this
    if (!call->hooks_->in_backward()) return;
    const auto places = wanting(outputs);
    if (places.empty()) return;
    watch("module's outputs", outputs, places, [call, count](Tensors& grads) {
      call->hooks_->before_backward.run([&](const BackwardPreHook& hook) {
        replace("gradients", call->plain_, grads, hook(call->plain_, grads));
      });
      call->grad_outputs_ = grads;
      Tensors none(count);
      if (!call->input_wants_) call->leave(none);
    });
  }

 private:
  void leave(Tensors& grad_inputs) {
    hooks_->after_backward.run([&](const BackwardHook& hook) {
      replace("gradients", plain_, grad_inputs, hook(plain_, grad_inputs, grad_outputs_));
    });
    grad_outputs_.clear();
  }

  Module& module_;  // while forward runs
  Module plain_;    // afterwards
  std::shared_ptr<ModuleHooks> hooks_;
  Tensors inputs_, grad_outputs_;
  bool input_wants_ = false;
};

bool Module::has_hooks() const { return !hooks()->empty(); }

std::shared_ptr<Module::HookedCall> Module::before_forward(Tensors& inputs) {
  auto call = std::make_shared<HookedCall>(target(), hooks());
  HookedCall::before(call, inputs);
  return call;
}

void Module::after_forward(const std::shared_ptr<HookedCall>& call, Tensors& outputs) {
  HookedCall::after(call, outputs);
}

std::uint64_t Module::register_forward_pre_hook(ForwardPreHook hook) {
  hooks()->before_forward.add(hooks()->next, std::move(hook));
  return hooks()->next++;
}

std::uint64_t Module::register_forward_hook(ForwardHook hook) {
  hooks()->after_forward.add(hooks()->next, std::move(hook));
  return hooks()->next++;
}

std::uint64_t Module::register_full_backward_pre_hook(BackwardPreHook hook) {
  hooks()->before_backward.add(hooks()->next, std::move(hook));
  return hooks()->next++;
}

std::uint64_t Module::register_full_backward_hook(BackwardHook hook) {
  hooks()->after_backward.add(hooks()->next, std::move(hook));
  return hooks()->next++;
}

std::uint64_t Module::add_pre_hook(PreHook hook) {
  return register_forward_pre_hook([hook = std::move(hook)](Module& module, const Tensors& inputs) {
    const Tensor other = hook(module, inputs.empty() ? Tensor() : inputs.front());
    if (!other.defined()) return Replaced();
    Tensors all = inputs;
    PEAL_CHECK(!all.empty(), module.class_name(), ": a hook gave an input where there is none");
    all.front() = other;
    return Replaced(std::move(all));
  });
}

std::uint64_t Module::add_hook(Hook hook) {
  return register_forward_hook([hook = std::move(hook)](Module& module, const Tensors& inputs,
                                                        const Tensors& outputs) {
    const Tensor other = hook(module, inputs.empty() ? Tensor() : inputs.front(),
                              outputs.empty() ? Tensor() : outputs.front());
    if (!other.defined()) return Replaced();
    Tensors all = outputs;
    PEAL_CHECK(!all.empty(), module.class_name(), ": a hook gave an output where there is none");
    all.front() = other;
    return Replaced(std::move(all));
  });
}

void Module::remove_hook(std::uint64_t id) {
  const std::shared_ptr<ModuleHooks> all = hooks();
  all->before_forward.remove(id);
  all->after_forward.remove(id);
  all->before_backward.remove(id);
  all->after_backward.remove(id);
}

}  // namespace peal::nn
