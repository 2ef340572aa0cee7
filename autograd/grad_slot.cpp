// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/graph.h>
#include <peal/autograd/grad_slot.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/strided.h>
#include <peal/autograd/tape.h>

#include <utility>

namespace peal {

GradSlot::GradSlot(const Shape& shape, DType dtype, Device device)
    : shape_(shape), dtype_(dtype), device_(device) {}

void GradSlot::place(const Tensor& where) {
  PEAL_CHECK(where.shape() == shape_ && where.dtype() == dtype_ && where.device() == device_,
             "gradient: a place for ", dtype_, " ", shape_, " on ", device_, " expected, got ",
             where.dtype(), " ", where.shape(), " on ", where.device());
  const Tensor here = where.detach();
  if (defined_) here.copy_(place_);
  place_ = here;
  placed_by_other_ = true;
}

void GradSlot::unplace() {
  place_ = defined_ ? place_.clone() : Tensor();
  placed_by_other_ = false;
}

void GradSlot::keep_in(DType dtype, bool casts) {
  PEAL_CHECK(!defined_, "gradient: there is one in ", dtype_, ", which is not to be kept in ",
             dtype, " from now on; drop it before");
  unplace();
  dtype_ = dtype;
  casts_ = casts;
}

void GradSlot::accumulate(Tensor grad) {
  PEAL_CHECK(grad.shape() == shape_ && grad.dtype() == dtype_, "gradient: expected ", dtype_, " ",
             shape_, ", got ", grad.dtype(), " ", grad.shape());
  if (defined_) {
    add_(place_, grad);
  } else if (placed_by_other_) {
    place_.copy_(grad);
  } else {
    place_ = grad.owned_alone() ? as_result(std::move(grad)) : grad.clone();
    // A graph that is being captured writes there at each replay: it stays the place.
    placed_by_other_ = Graph::capturing() != nullptr;
  }
  defined_ = true;
}

std::uint64_t GradSlot::add_hook(Hook hook) {
  hooks_.add(next_id_, std::move(hook));
  return next_id_++;
}

void GradSlot::set_final_hook(Hook hook) {
  PEAL_CHECK(!final_hook_,
             "gradient: this parameter already belongs to a distributed wrapper; "
             "destroy that one first");
  final_hook_ = std::move(hook);
}

void GradSlot::receive(Tensor grad, bool had_one) {
  if (casts_ && grad.dtype() != dtype_) grad = cast(grad, dtype_);
  const bool aside = had_one ? pending_.defined() : !gradient_hooks_.empty();
  if (!aside) return accumulate(std::move(grad));
  pending_ = pending_.defined() ? add(pending_, grad) : std::move(grad);
}

void GradSlot::complete() {
  if (pending_.defined()) {
    accumulate(run_hooks(gradient_hooks_, "a leaf", std::exchange(pending_, Tensor())));
  }
  if (!defined_) return;
  completed_in_ = backward_number();
  hooks_.run([this](const Hook& hook) { hook(place_); });
  if (!final_hook_) return;
  const Hook hook = final_hook_;  // which may take itself off, and set another
  hook(place_);
}

}  // namespace peal
