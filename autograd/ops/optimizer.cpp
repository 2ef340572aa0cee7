// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/optimizer.h>

namespace peal {
namespace {

void check_like(std::string_view op, const Tensor& param, const Tensor& other, DType dtype) {
  PEAL_CHECK(
      other.shape() == param.shape() && other.dtype() == dtype && other.device() == param.device(),
      op, ": a parameter ", param.dtype(), " ", param.shape(), " on ", param.device(),
      " came with ", other.dtype(), " ", other.shape(), " on ", other.device());
}

// The list is of one kind, and the tensors of each parameter belong together.
void check_list(std::string_view op, std::span<const Stepped> list) {
  const Stepped& front = list.front();
  for (const Stepped& each : list) {
    const bool master = each.rounded.defined();
    check_like(op, each.param, each.grad, master ? each.rounded.dtype() : each.param.dtype());
    if (master) {
      PEAL_CHECK(each.param.dtype() == computed_in(each.rounded.dtype()), op, ": a parameter ",
                 each.param.dtype(), " is not the master of one in ", each.rounded.dtype());
      check_like(op, each.param, each.rounded, each.rounded.dtype());
    }
    for (const Tensor* state : {&each.first, &each.second, &each.third}) {
      if (state->defined()) check_like(op, each.param, *state, each.param.dtype());
    }
    PEAL_CHECK(
        each.param.dtype() == front.param.dtype() && each.grad.dtype() == front.grad.dtype() &&
            each.param.device() == front.param.device() && master == front.rounded.defined() &&
            each.first.defined() == front.first.defined(),
        op, ": a list of parameters of several types or devices");
  }
}

void bump_versions(std::span<const Stepped> list) {
  for (const Stepped& each : list) {
    for (const Tensor* written :
         {&each.param, &each.first, &each.second, &each.third, &each.rounded}) {
      if (written->defined()) written->storage()->bump_version();
    }
  }
}

}  // namespace

void sgd_step(std::span<const Stepped> list, const SgdStep& options) {
  if (list.empty()) return;
  TraceSpan span("sgd_step");
  check_list("sgd_step", list);
  for (const Stepped& each : list) {
    PEAL_CHECK(each.first.defined() == (options.momentum != 0), "sgd_step: momentum ",
               options.momentum, " came ",
               each.first.defined() ? "with a buffer" : "without a buffer");
  }
  const Tensor& subject = list.front().param;
  kernels(subject.device()).sgd("sgd_step", subject, list, options);
  bump_versions(list);
}

void sgd_step(const Tensor& param, const Tensor& grad, const Tensor& momentum_buffer,
              const SgdStep& options) {
  const Stepped one{param, grad, momentum_buffer, {}};
  sgd_step({&one, 1}, options);
}

void adam_step(std::span<const Stepped> list, const AdamStep& options) {
  if (list.empty()) return;
  TraceSpan span("adam_step");
  check_list("adam_step", list);
  for (const Stepped& each : list) {
    PEAL_CHECK(each.first.defined() && each.second.defined(), "adam_step: a parameter of shape ",
               each.param.shape(), " came without its moments");
  }
  PEAL_CHECK(options.step >= 1, "adam_step: steps count from 1, got ", options.step);
  const Tensor& subject = list.front().param;
  kernels(subject.device()).adam("adam_step", subject, list, options);
  bump_versions(list);
}

void adam_step(const Tensor& param, const Tensor& grad, const Tensor& exp_avg,
               const Tensor& exp_avg_sq, const AdamStep& options) {
  const Stepped one{param, grad, exp_avg, exp_avg_sq};
  adam_step({&one, 1}, options);
}

void rule_step(std::span<const Stepped> list, const RuleStep& options) {
  if (list.empty()) return;
  TraceSpan span("rule_step");
  check_list("rule_step", list);
  const int wanted = states_of(options.rule);
  for (const Stepped& each : list) {
    const int found = (each.first.defined() ? 1 : 0) + (each.second.defined() ? 1 : 0) +
                      (each.third.defined() ? 1 : 0);
    PEAL_CHECK(found == wanted && (wanted < 2 || each.second.defined()) && each.first.defined(),
               "rule_step: rule ", static_cast<int>(options.rule), " has ", wanted,
               " tensors of state, and a parameter of shape ", each.param.shape(), " came with ",
               found);
  }
  const Tensor& subject = list.front().param;
  kernels(subject.device()).rule_step("rule_step", subject, list, options);
  bump_versions(list);
}

}  // namespace peal
