// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/nn/parallel/fail_everywhere.h>
#include <peal/nn/parallel/members.h>

#include <algorithm>
#include <utility>

namespace peal::nn {

Members::Members(const Module& module, comm::ProcessGroup group, bool buffers,
                 const std::vector<std::string>& ignored)
    : module_(module),
      group_(std::move(group)),
      buffers_too_(buffers),
      seen_(module.fingerprint()) {
  for (const auto& [name, tensor] : module_.named_parameters()) {
    const bool own = std::find(ignored.begin(), ignored.end(), name) != ignored.end();
    known_.emplace(&tensor.body(), std::pair(own || tensor.requires_grad(), tensor));
  }
  for (const auto& [name, tensor] : module_.named_buffers()) {
    buffers_.emplace(&tensor.body(), tensor);
  }
}

void Members::check() {
  const std::uint64_t now = module_.fingerprint();
  if (now == seen_) return;
  std::string strangers, thawed, buffers;
  const auto name_in = [](std::string& list, const std::string& name) {
    list += concat(list.empty() ? "" : ", ", name);
  };
  for (const auto& [name, tensor] : module_.named_parameters()) {
    const auto known = known_.find(&tensor.body());
    if (!tensor.requires_grad() || (known != known_.end() && known->second.first)) continue;
    name_in(known == known_.end() ? strangers : thawed, name);
  }
  for (const auto& [name, tensor] : module_.named_buffers()) {
    if (buffers_too_ && !buffers_.contains(&tensor.body())) name_in(buffers, name);
  }
  if (strangers.empty() && thawed.empty() && buffers.empty()) {
    seen_ = now;
    return;
  }
  if (!thawed.empty()) {
    fail_everywhere(
        group_, concat(thawed,
                       " was frozen when the model was wrapped and is trained now, which is not "
                       "averaged; wrap the model again after thawing"));
  }
  if (!strangers.empty()) {
    fail_everywhere(group_, concat(strangers,
                                   " joined the model after it was wrapped and would not be "
                                   "averaged; wrap the model again"));
  }
  fail_everywhere(group_, concat("buffer ", buffers,
                                 " joined the model after it was wrapped and would not be made "
                                 "equal to rank 0's; wrap the model again"));
}

}  // namespace peal::nn
