// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/grad_slot.h>
#include <peal/autograd/ops/factory.h>
#include <peal/nn/parallel/grad_buckets.h>

#include <algorithm>

namespace peal::nn {
GradBuckets::GradBuckets(const NamedTensors& parameters, const std::vector<Bucket>& plan,
                         const comm::ProcessGroup& group, const Complete& complete) {
  for (const auto& [name, tensor] : parameters) {
    PEAL_CHECK(!tensor.requires_grad() || !tensor.grad_slot().has_final_hook(), "[ddp] ", name,
               " already belongs to a distributed wrapper; destroy that one first");
  }
  // All memory before the first hook: a constructor that throws leaves no hook behind.
  for (std::size_t b = 0; b < plan.size(); ++b) {
    GradBucket& bucket = buckets_.emplace_back();
    bucket.index = b;
    bucket.is_last = b + 1 == plan.size();
    const auto first = static_cast<std::size_t>(plan[b].entries.front().parameter);
    const Device device = parameters[first].second.device();
    if (bucket.is_last && device == Device{}) {
      const auto line = 64 / static_cast<std::int64_t>(size_of(plan[b].dtype));
      const std::int64_t at = (plan[b].count + line - 1) / line * line;
      flagged_ = group.allocate({at + line}, plan[b].dtype, device);
      flag_ = flagged_.detach({1}, at);
      bucket.buffer = flagged_.detach({plan[b].count});
    } else {
      bucket.buffer = group.allocate({plan[b].count}, plan[b].dtype, device);
    }
    std::string& name = names_.emplace_back(concat("bucket ", b, ":"));
    for (const auto& [parameter, at] : plan[b].entries) {
      const auto& [own, tensor] = parameters[static_cast<std::size_t>(parameter)];
      name += concat(bucket.parameters.empty() ? " " : ", ", own);
      bucket.parameters.push_back(tensor);
    }
  }
  for (std::size_t b = 0; b < plan.size(); ++b) {
    for (const auto& [parameter, at] : plan[b].entries) {
      const auto index = static_cast<std::size_t>(parameter);
      const Tensor& tensor = parameters[index].second;
      // Of two words, which a std::function copies without memory of its own.
      tensor.grad_slot().set_final_hook([&complete, index](const Tensor&) { complete(index); });
      tensor.grad_slot().place(buckets_[b].buffer.detach(tensor.shape(), at));
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

GradBuckets::~GradBuckets() {
  for (const GradBucket& bucket : buckets_) {
    for (const Tensor& parameter : bucket.parameters) {
      parameter.grad_slot().remove_final_hook();
      parameter.grad_slot().unplace();
    }
  }
}

}  // namespace peal::nn
