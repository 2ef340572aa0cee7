// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/grad_slot.h>
#include <peal/autograd/hooks.h>
#include <peal/autograd/tape.h>

#include <atomic>
#include <utility>

namespace peal {
namespace {

NodeHooks& hooks_of(Node& node) {
  if (!node.hooks) node.hooks = std::make_unique<NodeHooks>();
  return *node.hooks;
}

}  // namespace

std::uint64_t new_hook_id() {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

Tensor run_hooks(GradientHooks& hooks, std::string_view op, Tensor grad) {
  hooks.run([&](const Tensor::GradientHook& hook) {
    Tensor other = hook(grad);
    if (!other.defined()) return;
    PEAL_CHECK(other.shape() == grad.shape() && other.dtype() == grad.dtype() &&
                   other.device() == grad.device(),
               "register_hook: a hook of ", op, " was given a gradient ", grad.dtype(), " ",
               grad.shape(), " on ", grad.device(), " and returned ", other.dtype(), " ",
               other.shape(), " on ", other.device(), "; return one like it, or nothing");
    grad = std::move(other);
  });
  return grad;
}

void NodeHooks::run(std::string_view op, Tensors& grads, bool retain) {
  for (auto& [index, output] : outputs) {
    Tensor& grad = grads[static_cast<std::size_t>(index)];
    if (!grad.defined()) continue;
    if (!output.hooks.empty()) grad = run_hooks(output.hooks, concat("'", op, "'"), grad);
    if (retain && output.retained) output.retained->accumulate(grad);
  }
}

void move_retained(const std::shared_ptr<Node>& from, int output, const Tensor& to) {
  if (!from || !from->hooks) return;
  std::shared_ptr<GradSlot> slot = std::move(from->hooks->outputs[output].retained);
  if (!slot) return;
  TensorBody& body = to.body();
  hooks_of(*body.node).outputs[body.output].retained = slot;
  body.slot = std::move(slot);
}

std::uint64_t Tensor::add_gradient_hook(GradientHook hook) const {
  PEAL_CHECK(requires_grad(), "register_hook: this tensor of shape ", shape(),
             " wants no gradient, so none would come; set_requires_grad() before it is used");
  const std::uint64_t id = new_hook_id();
  const TensorBody& here = body();
  GradientHooks& hooks =
      here.node ? hooks_of(*here.node).outputs[here.output].hooks : here.slot->gradient_hooks();
  hooks.add(id, std::move(hook));
  return id;
}

void Tensor::remove_hook(std::uint64_t id) const {
  const TensorBody& here = body();
  if (!here.node) {
    if (here.slot) here.slot->gradient_hooks().remove(id);
  } else if (here.node->hooks) {
    here.node->hooks->outputs[here.output].hooks.remove(id);
  }
}

void Tensor::retain_grad() const {
  TensorBody& here = body();
  PEAL_CHECK(requires_grad(), "retain_grad: this tensor of shape ", shape(),
             " wants no gradient, so none would come; set_requires_grad() before it is used");
  if (!here.node || here.slot) return;  // a leaf's is kept anyway
  here.slot = std::make_shared<GradSlot>(here.shape, here.dtype, device());
  hooks_of(*here.node).outputs[here.output].retained = here.slot;
}

}  // namespace peal
