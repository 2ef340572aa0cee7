// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/log.h>
#include <peal/autograd/grad_slot.h>
#include <peal/autograd/ops/factory.h>
#include <peal/nn/parallel/grad_buckets.h>

#include <algorithm>
#include <exception>

namespace peal::nn {
GradBuckets::GradBuckets(const NamedTensors& parameters, const std::vector<Bucket>& plan,
                         const comm::ProcessGroup& group, const Complete& complete) {
  for (const auto& [name, tensor] : parameters) {
    PEAL_CHECK(!tensor.requires_grad() || !tensor.grad_slot().has_final_hook(), "[ddp] ", name,
               " already belongs to a distributed wrapper; destroy that one first");
  }
  try {
    for (std::size_t b = 0; b < plan.size(); ++b) {
      add(parameters, plan[b], group, b + 1 == plan.size());
    }
  } catch (...) {
    leave();
    throw;
  }
  for (const Bucket& bucket : plan) {
    for (const auto& [parameter, at] : bucket.entries) {
      const auto index = static_cast<std::size_t>(parameter);
      // Of two words, which a std::function copies without memory of its own.
      parameters[index].second.grad_slot().set_final_hook(
          [&complete, index](const Tensor&) { complete(index); });
    }
  }
}

void GradBuckets::add(const NamedTensors& parameters, const Bucket& plan,
                      const comm::ProcessGroup& group, bool is_last) {
  const std::size_t number = buckets_.size();
  GradBucket& bucket = buckets_.emplace_back();
  bucket.index = number;
  bucket.is_last = is_last;
  const auto first = static_cast<std::size_t>(plan.entries.front().parameter);
  const Device device = parameters[first].second.device();
  const bool shared = plan.owner == everyone;
  const bool elsewhere = !shared && plan.owner != group.rank();
  plans_.push_back(elsewhere ? plan : Bucket{});
  if (is_last && device == Device{}) {
    const auto line = 64 / static_cast<std::int64_t>(size_of(plan.dtype));
    const std::int64_t at = shared ? (plan.count + line - 1) / line * line : 0;
    flag_is_apart_ = !shared;
    flagged_ = group.allocate({at + line}, plan.dtype, device);
    flag_ = flagged_.detach({1}, at);
    const std::int64_t digits = size_of(plan.dtype) >= 4 ? SampleWeights::digits : 0;
    if (digits > 0) digits_ = flagged_.detach({digits}, at + 1);
    tail_ = flagged_.detach({1 + digits}, at);
    if (shared) bucket.buffer = flagged_.detach({plan.count});
  } else if (shared) {
    bucket.buffer = group.allocate({plan.count}, plan.dtype, device);
  }
  // Memory of a group is allocated by all of its ranks alike.
  if (!shared && !elsewhere) bucket.buffer = Tensor::zeros({plan.count}, plan.dtype, device);
  std::string& name = names_.emplace_back(concat("bucket ", number, ":"));
  for (const auto& [parameter, at] : plan.entries) {
    const auto& [own, tensor] = parameters[static_cast<std::size_t>(parameter)];
    name += concat(bucket.parameters.empty() ? " " : ", ", own);
    if (!elsewhere) tensor.grad_slot().place(bucket.buffer.detach(tensor.shape(), at));
    bucket.parameters.push_back(tensor);
    bucket.names.push_back(own);
  }
}

void GradBuckets::collect(std::size_t bucket) {
  const Bucket& plan = plans_[bucket];
  GradBucket& here = buckets_[bucket];
  const Tensor& first = here.parameters.front();
  if (plan.entries.size() == 1 && first.grad().defined()) {
    here.buffer = first.grad().detach({plan.count});  // it stays where it is
  } else {
    here.buffer = Tensor::zeros({plan.count}, plan.dtype, first.device());
  }
  for (std::size_t i = 0; i < here.parameters.size(); ++i) {
    const Tensor grad = here.parameters[i].grad();
    if (!grad.defined()) continue;
    const Tensor place = here.buffer.detach(grad.shape(), plan.entries[i].at);
    if (plan.entries.size() > 1) place.copy_(grad);
    here.parameters[i].grad_slot().clear();
  }
}

void GradBuckets::give_back() {
  for (GradBucket& bucket : buckets_) {
    for (const Tensor& parameter : bucket.parameters) {
      parameter.grad_slot().remove_final_hook();
      if (!is_elsewhere(bucket.index)) parameter.grad_slot().unplace();
    }
    bucket.parameters.clear();
    bucket.buffer = {};
  }
  flagged_ = flag_ = digits_ = tail_ = {};
}

void GradBuckets::leave() noexcept {
  for (const GradBucket& bucket : buckets_) {
    for (const Tensor& parameter : bucket.parameters) {
      parameter.grad_slot().remove_final_hook();
      if (is_elsewhere(bucket.index)) continue;
      try {
        parameter.grad_slot().unplace();
      } catch (const std::exception& error) {
        log_warning("[ddp] a gradient stays in its bucket's memory: ", error.what());
      }
    }
  }
}

void GradBuckets::raise_flag() { fill_(flag_, 1); }

void GradBuckets::lower_flag() { flag_.zero_(); }

// Any bit: an average of zeros and ones, of whatever type.
bool GradBuckets::flag_raised() const {
  const auto* const bytes = static_cast<const char*>(flag_.raw());
  return std::any_of(bytes, bytes + size_of(flag_.dtype()), [](char byte) { return byte != 0; });
}

GradBuckets::~GradBuckets() { leave(); }

}  // namespace peal::nn
