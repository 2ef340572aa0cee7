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

// One call of forward. What the nodes of its part of a backward hold is a part that holds no tensor
// of the graph: a forward that throws leaves no circle behind.
class Module::HookedCall {
 public:
  HookedCall(Module& module, const std::shared_ptr<ModuleHooks>& hooks)
      : module_(module),
        hooks_(hooks),
        part_(std::make_shared<Part>(static_cast<const Module&>(module), hooks)) {}

  void before(Tensors& inputs) {
    hooks_->before_forward.run([&](const ForwardPreHook& hook) {
      replace("inputs", module_, inputs, hook(module_, inputs));
    });
    if (hooks_->in_backward()) {
      const auto places = wanting(inputs);
      part_->input_wants = !places.empty();
      if (part_->input_wants) {
        watch("module's inputs", inputs, places,
              [part = part_](Tensors& grads) { part->leave(grads); });
      }
    }
    inputs_ = inputs;
  }

  void after(Tensors& outputs) {
    hooks_->after_forward.run([&](const ForwardHook& hook) {
      replace("outputs", module_, outputs, hook(module_, inputs_, outputs));
    });
    if (!hooks_->in_backward()) return;
    const auto places = wanting(outputs);
    if (places.empty()) return;
    watch("module's outputs", outputs, places,
          [part = part_, count = inputs_.size()](Tensors& grads) { part->enter(grads, count); });
  }

 private:
  struct Part {
    Part(const Module& module, const std::shared_ptr<ModuleHooks>& hooks)
        : module(module), hooks(hooks) {}

    void enter(Tensors& grads, std::size_t inputs) {
      hooks->before_backward.run([&](const BackwardPreHook& hook) {
        replace("gradients", module, grads, hook(module, grads));
      });
      grad_outputs = grads;
      Tensors none(inputs);
      if (!input_wants) leave(none);
    }
    void leave(Tensors& grad_inputs) {
      hooks->after_backward.run([&](const BackwardHook& hook) {
        replace("gradients", module, grad_inputs, hook(module, grad_inputs, grad_outputs));
      });
      grad_outputs.clear();
    }

    Module module;
    std::shared_ptr<ModuleHooks> hooks;
    Tensors grad_outputs;
    bool input_wants = false;
  };

  Module& module_;
  std::shared_ptr<ModuleHooks> hooks_;
  Tensors inputs_;
  std::shared_ptr<Part> part_;
};

bool Module::has_hooks() const { return !hooks()->empty(); }
bool Module::computes_parameters() const { return hooks()->computes_parameters; }

std::shared_ptr<Module::HookedCall> Module::before_forward(Tensors& inputs) {
  auto call = std::make_shared<HookedCall>(target(), hooks());
  call->before(inputs);
  return call;
}

void Module::after_forward(const std::shared_ptr<HookedCall>& call, Tensors& outputs) {
  call->after(outputs);
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
