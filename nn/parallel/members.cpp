// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/nn/parallel/members.h>

#include <utility>

namespace peal::nn {

Members::Members(const Module& module, std::shared_ptr<comm::ProcessGroup> group)
    : module_(module), group_(std::move(group)), seen_(module.fingerprint()) {
  for (const auto& [name, tensor] : module_.named_parameters()) {
    known_.emplace(&tensor.body(), std::pair(tensor.requires_grad(), tensor));
  }
}

void Members::check() {
  const std::uint64_t now = module_.fingerprint();
  if (now == seen_) return;
  std::string strangers, thawed;
  for (const auto& [name, tensor] : module_.named_parameters()) {
    const auto known = known_.find(&tensor.body());
    if (!tensor.requires_grad() || (known != known_.end() && known->second.first)) continue;
    std::string& list = known == known_.end() ? strangers : thawed;
    list += concat(list.empty() ? "" : ", ", name);
  }
  if (strangers.empty() && thawed.empty()) {
    seen_ = now;
    return;
  }
  std::string message = concat("[ddp] rank ", group_->rank(), ": ");
  if (!thawed.empty()) {
    message += concat(thawed,
                      " was frozen when the model was wrapped and is trained now, which is not "
                      "averaged; wrap the model again after thawing");
  } else {
    message += concat(strangers,
                      " joined the model after it was wrapped and would not be averaged; wrap the "
                      "model again");
  }
  group_->poison(message);
  fail(message);
}

}  // namespace peal::nn
