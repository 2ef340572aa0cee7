// SPDX-License-Identifier: Apache-2.0
// GradSlot: where the gradient of one leaf lives. The storage can be placed by others (DDP puts it
// into a bucket); the value is undefined until written: the first write overwrites, later ones add,
// zero_grad marks it undefined again, and gives back memory that is the slot's own. Hooks run when
// the gradient is complete, that is, when every path of a backward has added to it (PyTorch's
// post-accumulate-grad hook); they may write it in place, never rebind it. The final hook, of which
// there is one, runs last: it is DDP's. Thread safety: belongs to the thread that runs backward.
#pragma once

#include <peal/autograd/core/hook_list.h>
#include <peal/autograd/core/tensor.h>
#include <peal/autograd/hooks.h>

#include <cstdint>
#include <functional>

namespace peal {

class GradSlot {
 public:
  using Hook = std::function<void(const Tensor& grad)>;

  GradSlot(const Shape& shape, DType dtype, Device device);

  // The gradient, or an undefined tensor.
  Tensor grad() const { return defined_ ? place_ : Tensor(); }
  bool defined() const { return defined_; }
  DType dtype() const { return dtype_; }
  // Memory that is the slot's own goes back, for the next forward to use.
  void clear() {
    defined_ = false;
    if (!placed_by_other_) place_ = Tensor();
  }

  // The gradient lives in `where` (same shape, dtype and device) from now on; a defined value moves
  // along.
  void place(const Tensor& where);
  // Gives up a place of somebody else's; a defined value is copied to storage of its own.
  void unplace();

  // Of that type from now on; `casts`: what a backward brings in another becomes it. Hooks stay.
  // REQUIRES: there is none.
  void keep_in(DType dtype, bool casts);

  // Overwrites or adds. Takes `grad` itself as storage where nobody else holds it and no place is
  // set.
  void accumulate(Tensor grad);

  // Hooks run in the order in which they were added. The id removes it. While they run, one that is
  // added waits for the next time, and one that is removed does not run any more.
  std::uint64_t add_hook(Hook hook);
  void remove_hook(std::uint64_t id) { hooks_.remove(id); }
  // Error when one is set already: a parameter belongs to one DDP.
  void set_final_hook(Hook hook);
  void remove_final_hook() { final_hook_ = nullptr; }
  bool has_final_hook() const { return static_cast<bool>(final_hook_); }
  // Those of Tensor::register_hook, which see the gradient of a backward before it is accumulated.
  GradientHooks& gradient_hooks() { return gradient_hooks_; }

  // For the tape: a contribution of this backward, accumulated, or kept aside for the hooks where
  // there were some when the first one came.
  void receive(Tensor grad, bool had_one);
  void drop_pending() { pending_ = Tensor(); }
  // For the tape: the gradient of this backward is all there.
  void complete();
  // The last backward of which it was (backward_number()); 0: none.
  std::uint64_t completed_in() const { return completed_in_; }

  std::int64_t expected = 0;  // scratch of the walk: contributions still to come
  bool touched = false;       // scratch of the walk: one of them had a value

 private:
  Shape shape_;
  DType dtype_;
  Device device_;
  Tensor place_;
  bool placed_by_other_ = false;
  bool defined_ = false, casts_ = false;
  std::uint64_t completed_in_ = 0;
  std::uint64_t next_id_ = 1;
  GradientHooks gradient_hooks_;
  Tensor pending_;  // what they will see
  HookList<Hook> hooks_;
  Hook final_hook_;
};

}  // namespace peal
