// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/grad_slot.h>
#include <peal/nn/parallel/grad_buckets.h>

#include <utility>

namespace peal::nn {
namespace {

Device common_device(const NamedTensors& parameters) {
  for (const auto& [name, tensor] : parameters) {
    const auto& [first_name, first] = parameters.front();
    PEAL_CHECK(tensor.device() == first.device(), "[ddp] ", first_name, " is on ", first.device(),
               " and ", name, " on ", tensor.device(),
               "; move the whole model to one device before it is wrapped");
  }
  return parameters.empty() ? Device{} : parameters.front().second.device();
}

}  // namespace

GradBuckets::GradBuckets(const NamedTensors& parameters, const std::vector<Bucket>& plan,
                         const comm::ProcessGroup& group,
                         std::function<void(std::size_t, std::size_t)> complete)
    : complete_(std::move(complete)) {
  for (const auto& [name, tensor] : parameters) {
    PEAL_CHECK(!tensor.requires_grad() || !tensor.grad_slot().has_final_hook(), "[ddp] ", name,
               " already belongs to a distributed wrapper; destroy that one first");
  }
  const Device device = common_device(parameters);
  // All memory before the first hook: a constructor that throws leaves no hook behind.
  for (std::size_t b = 0; b < plan.size(); ++b) {
    GradBucket& bucket = buckets_.emplace_back();
    bucket.index = b;
    bucket.last = b + 1 == plan.size();
    bucket.memory = group.allocate({plan[b].count}, plan[b].dtype, device);
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
      tensor.grad_slot().set_final_hook([this, index, b](const Tensor&) { complete_(index, b); });
      tensor.grad_slot().place(buckets_[b].memory.detach(tensor.shape(), at));
    }
  }
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
